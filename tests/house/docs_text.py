# SPDX-License-Identifier: Apache-2.0
"""Parses the documents' Markdown: fenced blocks, commands in fenced blocks, links and anchors."""
import pathlib
import re

# The languages that fenced blocks may have. Only two of these languages contain commands: in `sh`, every line is a
# command; in `console`, every line with a prompt.
LANGUAGES = {"sh", "console", "text", "ini", "yaml", "json", "python", "c"}
PROMPT = re.compile(r"(\w*[$]|#) (.+)")


def list_pages(root):
    """Returns the pages whose links are checked: README.md, docs/, examples/, and others in the root folder."""
    more = [root / n for n in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
    return more + sorted((root / "docs").rglob("*.md")) + sorted((root / "examples").rglob("*.md"))


def list_command_pages(root):
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def list_blocks(text):
    """Yields (line number, language, lines) for each fenced block. The lines lack the fence's indentation."""
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
    """Returns the text without any comment, and whether the text ends inside quotation marks."""
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
    """Yields (prompt, command) for each command in a block, with single spaces and without comments. A command
    continues on the next line after a backslash or inside quotation marks."""
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
    """Returns the texts between backticks, except in fenced blocks."""
    return [re.sub(r"\s+", " ", s) for s in re.findall(r"`([^`]+)`", strip_blocks(text))]


def list_anchors(text):
    """Returns the anchors of a page's headings, as GitHub generates them."""
    anchors = set()
    for head in re.findall(r"^#+ (.+)$", strip_blocks(text), re.M):
        head = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", head)
        anchor = re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-")
        while anchor in anchors:
            anchor += "-1"
        anchors.add(anchor)
    return anchors


def list_links(page, text):
    """Yields (link as written, target path, anchor) for each link to a file."""
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", strip_blocks(text))):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        yield link, pathlib.Path(page.parent / path).resolve() if path else page, anchor
