"""Generate libs/perdure/contracts/v1 from proto/ (run by `make proto`).

Protobuf's generated imports name the proto package (`perdure.v1`); the Python package is
`perdure.contracts.v1`, so the one import form that the generator writes is rewritten.
"""

import argparse
import re
import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[1]
HEADER = '"""Generated from proto/perdure/v1 by `make proto`. Do not edit."""\n'


def generate(out: Path) -> None:
    """Write the generated modules and their stubs into the folder `out`."""
    out.mkdir(parents=True, exist_ok=True)
    protos = sorted((ROOT / "proto").rglob("*.proto"))
    scratch = out / ".generated"
    scratch.mkdir(exist_ok=True)
    code = protoc.main(
        [
            "protoc",
            f"--proto_path={ROOT / 'proto'}",
            f"--proto_path={files('grpc_tools') / '_proto'}",
            f"--python_out={scratch}",
            f"--pyi_out={scratch}",
            *(str(proto) for proto in protos),
        ]
    )
    if code != 0:
        sys.exit(f"protoc failed with exit code {code}; its message is above")
    for path in sorted((scratch / "perdure" / "v1").iterdir()):
        text = path.read_text()
        text = re.sub(r"\bfrom perdure\.v1 import", "from perdure.contracts.v1 import", text)
        (out / path.name).write_text(text)
        path.unlink()
    for folder in (scratch / "perdure" / "v1", scratch / "perdure", scratch):
        folder.rmdir()
    (out / "__init__.py").write_text(HEADER)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "libs/perdure/contracts/v1")
    generate(parser.parse_args().out)
