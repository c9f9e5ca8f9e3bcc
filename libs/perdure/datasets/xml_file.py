"""XML files that are not trusted, as small trees of elements that know their line.

Expat reads them, and stops at a document type: so no entity is ever declared, expanded or fetched.
"""

import codecs
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple
from xml.parsers import expat

from perdure.datasets.findings import Fault, Findings, Severity
from perdure.datasets.text import MAX_TEXT_BYTES, decode_text, unreadable_file

# Labels are nested about five deep.
_MAX_DEPTH: Final = 64
# Of what is held at once: an element takes about 250 bytes, and the wordiest box ten elements.
_MAX_ELEMENTS: Final = 500_000
# Characters that expat gets at a time. It looks at an unfinished tag anew with each piece, so a tag
# without end would take the square of its length: masks have a few hundred thousand characters.
_PIECE_CHARACTERS: Final = 1 << 18
_MAX_TAG_BYTES: Final = 4 << 20
# A declaration is the first thing in a file, and is short.
_DECLARATION_BYTES: Final = 256
_DECLARED: Final = re.compile(rb"""\A<\?xml[^>]*?\sencoding\s*=\s*["']([A-Za-z0-9._:-]+)["']""")
# What declares no more than `decode_text` tries by itself. Windows' tools write "utf-16" into files
# in UTF-8; were it true, the declaration could not be read as ASCII.
_DECLARES_NOTHING: Final = frozenset({"utf-8", "ascii", "utf-16", "utf-16-le", "utf-16-be"})
# How UTF-16 without a mark begins: with "<".
_UTF16_MARKS: Final = {b"<\0": codecs.BOM_UTF16_LE, b"\0<": codecs.BOM_UTF16_BE}
# GB18030 has all characters of its forerunners at the same bytes.
_CHINESE: Final = frozenset({"gb2312", "gbk", "gb18030"})
# Python has codecs that are no encodings of text (zlib, idna): only these are used.
_OTHER_ENCODINGS: Final = re.compile(
    r"iso8859-\d+|cp(125\d|866|932|949|950)|koi8-[ru]|mac-roman|big5|shift_jis|euc_(jp|kr)"
)

_NO_ATTRIBUTES: Final[Mapping[str, str]] = MappingProxyType({})


class Element(NamedTuple):
    """An element. `text` is its own, without that of its children and without outer spaces."""

    tag: str
    text: str
    attributes: Mapping[str, str]
    children: tuple["Element", ...]
    line: int  # where its tag begins; 1 for the first

    def all(self, tag: str) -> tuple["Element", ...]:
        """The children of that tag, in their order."""
        return tuple(child for child in self.children if child.tag == tag)

    def first(self, tag: str) -> "Element | None":
        """The first child of that tag."""
        return next((child for child in self.children if child.tag == tag), None)


def read_xml(path: Path, name: str, findings: Findings) -> Element | None:
    """The tree of the file `name`; None, with an error in `findings`, where it cannot be read."""
    root, *parts = _parts(path, name, findings, MAX_TEXT_BYTES, _Builder(holds_all=True))
    if root is None or None in parts:
        return None
    return root._replace(children=tuple(part for part in parts if part is not None))


def read_parts(
    path: Path, name: str, findings: Findings, *, max_bytes: int = MAX_TEXT_BYTES
) -> Iterator[Element | None]:
    """The root of the file `name` without its children, and then each of these.

    No more than a few of them are held. Where the file cannot be read to its end, the last is
    None, and `findings` has the error.
    """
    return _parts(path, name, findings, max_bytes, _Builder(holds_all=False))


def _parts(
    path: Path, name: str, findings: Findings, max_bytes: int, builder: "_Builder"
) -> Iterator[Element | None]:
    text = _read_text(path, name, findings, max_bytes)
    if text is None:
        yield None
        return
    fed_bytes = 0
    try:
        for start in range(0, max(len(text), 1), _PIECE_CHARACTERS):
            piece = text[start : start + _PIECE_CHARACTERS].encode()
            builder.parse(piece, is_last=start + _PIECE_CHARACTERS >= len(text))
            fed_bytes += len(piece)
            yield from builder.take()
            builder.check_tag(fed_bytes)
    except expat.ExpatError as error:
        fault, line = _fault(error), error.lineno
    except _Refused as refused:
        fault, line = refused.fault, refused.line
    else:
        return
    yield from builder.take()
    findings.add(fault, name, line)
    yield None


class _Refused(Exception):
    """Leaves expat where the file breaks a rule of ours."""

    def __init__(self, fault: Fault, line: int) -> None:
        super().__init__(fault.code)
        self.fault = fault
        self.line = line


class _Open(NamedTuple):
    """An element whose end tag has not come yet."""

    tag: str
    attributes: Mapping[str, str]
    line: int
    texts: list[str]
    children: list[Element]


class _Builder:
    """Puts together what expat reports."""

    def __init__(self, *, holds_all: bool) -> None:
        # Given here, the encoding counts, and not the declared one: the text is decoded already.
        self._parser = expat.ParserCreate("utf-8")
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.StartDoctypeDeclHandler = self._document_type
        self._open: list[_Open] = []
        self._holds_all = holds_all
        self._held = 0
        self._ready: list[Element] = []

    def parse(self, piece: bytes, *, is_last: bool) -> None:
        """Raises ExpatError, or _Refused."""
        self._parser.Parse(piece, is_last)

    def check_tag(self, fed_bytes: int) -> None:
        """Raises _Refused when the tag that is being read has no end in sight."""
        if fed_bytes - self._parser.CurrentByteIndex > _MAX_TAG_BYTES:
            self._refuse(_invalid(f"a tag or a comment has more than {_MAX_TAG_BYTES} bytes"))

    def take(self) -> list[Element]:
        """What is complete by now: the root without its children, then these."""
        taken, self._ready = self._ready, []
        return taken

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        line = self._parser.CurrentLineNumber
        begins_part = len(self._open) == 1 and not self._holds_all
        self._held = 1 if begins_part else self._held + 1
        if len(self._open) >= _MAX_DEPTH:
            self._refuse(_invalid(f"elements are nested more than {_MAX_DEPTH} deep"))
        if self._held > _MAX_ELEMENTS:
            self._refuse(_invalid(f"there are more than {_MAX_ELEMENTS} elements"))
        if not self._open:
            self._ready.append(Element(tag, "", attributes or _NO_ATTRIBUTES, (), line))
        self._open.append(_Open(tag, attributes or _NO_ATTRIBUTES, line, [], []))

    def _end(self, _: str) -> None:
        tag, attributes, line, texts, children = self._open.pop()
        element = Element(tag, "".join(texts).strip(), attributes, tuple(children), line)
        if len(self._open) == 1:
            self._ready.append(element)
        elif self._open:
            self._open[-1].children.append(element)

    def _characters(self, text: str) -> None:
        if len(self._open) > 1:  # nothing reads the text between the parts of a file
            self._open[-1].texts.append(text)

    def _document_type(self, name: str, *_: object) -> None:
        self._refuse(_forbidden(f"<!DOCTYPE {name}"))

    def _refuse(self, fault: Fault) -> None:
        raise _Refused(fault, self._parser.CurrentLineNumber)


def _read_text(path: Path, name: str, findings: Findings, max_bytes: int) -> str | None:
    try:
        size_bytes = path.stat().st_size
        data = path.read_bytes() if size_bytes <= max_bytes else b""
    except OSError as error:
        findings.add(unreadable_file(error), name)
        return None
    if size_bytes > max_bytes:
        rule = f"an XML file must have at most {max_bytes} bytes"
        findings.error("files.too-large", name, f"{size_bytes}", rule, "split it, or look into it")
        return None
    text, fault = _decode(data)
    if fault is not None:
        findings.add(fault, name)
    return text


def _decode(data: bytes) -> tuple[str | None, Fault | None]:
    """The text, by the mark at its head, by the declaration, or by its look."""
    if mark := _UTF16_MARKS.get(data[:2]):
        return decode_text(mark + data)
    declared = _DECLARED.match(data[:_DECLARATION_BYTES])
    if declared is None:
        return decode_text(data)
    said = declared[1].decode()
    try:
        encoding = codecs.lookup(said).name
    except LookupError:
        encoding = ""
    if encoding in _DECLARES_NOTHING:
        return decode_text(data)
    if encoding in _CHINESE:
        encoding, said = "gb18030", "GB18030"
    elif not _OTHER_ENCODINGS.fullmatch(encoding):
        return None, _encoding(Severity.ERROR, said, "save the file in UTF-8")
    try:
        return data.decode(encoding), _encoding(Severity.INFO, said, f"it was read as {said}")
    except UnicodeDecodeError as error:
        excerpt = repr(data[error.start : error.start + 16])
        return None, _encoding(Severity.ERROR, f"{excerpt} in {said}", "save the file in UTF-8")


def _encoding(severity: Severity, value: str, advice: str) -> Fault:
    return Fault(severity, "text.encoding", value, "text must be UTF-8", advice)


def _fault(error: expat.ExpatError) -> Fault:
    said = expat.ErrorString(error.code) or ""
    return _forbidden(said) if said == expat.errors.XML_ERROR_UNDEFINED_ENTITY else _invalid(said)


def _forbidden(what: str) -> Fault:
    rule = "labels must have no document type, and no entities but those of XML itself"
    advice = "remove <!DOCTYPE ...> and write the text itself; nothing was expanded or fetched"
    return Fault(Severity.ERROR, "xml.forbidden", what, rule, advice)


def _invalid(why: str) -> Fault:
    rule = "labels must be well-formed XML"
    advice = "correct the file at this line, or write it again with the tool that made it"
    return Fault(Severity.ERROR, "xml.invalid", why, rule, advice)
