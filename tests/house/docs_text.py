# SPDX-License-Identifier: Apache-2.0
"""Reads the documents' Markdown: fenced blocks, the commands in them, links and anchors."""
import pathlib
import re

# The allowed languages of fenced blocks. Only `sh` (every line is a command) and `console` (a line with a prompt is a
# command) have commands.
LANGUAGES = {"sh", "console", "text", "ini", "yaml", "json", "python", "c"}
PROMPT = re.compile(r"(\w*[$]|#) (.+)")


def list_pages(root):
    """Returns the pages whose links are checked: README.md, docs/, examples/, and the other pages in the root folder."""
    more = [root / n for n in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
    return more + sorted((root / "docs").rglob("*.md")) + sorted((root / "examples").rglob("*.md"))


def list_command_pages(root):
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def list_blocks(text):
    """Yields (line number, language, lines) of each fenced block, without the fence's indentation."""
    fence, lines, start = None, [], 0
    for number, line in enumerate(text.splitlines(), 1):
        m = re.match(r"( *)```(\w*)$", line)
        if not m and fence is not None:
            lines.append(line[len(fence[1]):] if line.startswith(fence[1]) else line)
        elif m and fence is None:
            fence, lines, start = m, [], number
        elif m:
            yield start, fence[2], lines
            fence = None
    if fence is not None:
        yield start, "(not closed)", lines


def scan(text):
    """Returns the text without a comment, and whether a quotation is open at its end."""
    quote = ""
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c == "#" and (i == 0 or text[i - 1] in " \t"):
            return text[:i].rstrip(), False
    return text.rstrip(), bool(quote)


def list_commands(language, lines):
    """Yields (prompt, command) of a block's lines, with single blanks and without comments. A command continues after a
    backslash or in an open quotation."""
    command, prompt = "", ""
    for line in lines:
        if not command:
            m = PROMPT.match(line)
            if language == "console" and not m:
                continue
            prompt, line = (m[1], m[2]) if language == "console" else ("", line)
        command = f"{command}\n{line}" if command else line
        bare, is_open = scan(command)
        if is_open or line.endswith("\\"):
            command = bare if is_open else bare[:-1]
            continue
        if bare.strip():
            yield prompt, " ".join(bare.split())
        command = ""


def strip_blocks(text):
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.M | re.S)


def list_spans(text):
    """Returns the texts between backticks outside of blocks."""
    return [re.sub(r"\s+", " ", s) for s in re.findall(r"`([^`]+)`", strip_blocks(text))]


def list_anchors(text):
    """Returns the anchors of a page's headings, like GitHub."""
    anchors = set()
    for head in re.findall(r"^#+ (.+)$", strip_blocks(text), re.M):
        head = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", head)
        anchor = re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-")
        while anchor in anchors:
            anchor += "-1"
        anchors.add(anchor)
    return anchors


def list_links(page, text):
    """Yields (link as written, path of its target, anchor) of each link to a file."""
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", strip_blocks(text))):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        yield link, pathlib.Path(page.parent / path).resolve() if path else page, anchor
