"""What an id must look like to be trusted in names of streams, queues, files and addresses."""

import re
from typing import Final

MAX_WORKER_ID_CHARACTERS: Final = 100
# Of tasks, models and messages: what may stand in a stream's name, a URL and a file name.
SAFE_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# Of workers: it names a queue as well.
WORKER_ID: Final = re.compile(rf"[A-Za-z0-9-]{{1,{MAX_WORKER_ID_CHARACTERS}}}")
