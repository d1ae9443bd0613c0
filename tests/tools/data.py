#!/usr/bin/env python3
"""The data of the tests: archives of tests/data, unpacked into build/data.

    data.py                       unpacks what is new or has changed: tests/data/KIND.tar.xz into build/data/KIND
    data.py pack KIND FOLDER      makes tests/data/KIND.tar.xz of the files in FOLDER; the same files give the same bytes

A large KIND is a folder of archives (vision/gemma3.tar.xz), so that a change of one adds only that to the history.

Nothing is fetched. tests/data/README.md says what each kind is, where it came from and under which licence.
"""
import hashlib
import io
import lzma
import pathlib
import shutil
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKED, UNPACKED = ROOT / "tests/data", ROOT / "build/data"
STAMP = ".sha256"  # in every unpacked folder: of the archive that it came from


def unpack(archive):
    """One archive into its folder, whole or not at all: the folder gets its name when everything is in it."""
    folder = UNPACKED / str(archive.relative_to(PACKED)).removesuffix(".tar.xz")
    data = archive.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    stamp = folder / STAMP
    if stamp.exists() and stamp.read_text() == digest: return
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:xz") as t:
        for member in t:
            path = part / member.name
            if not member.isfile() or part not in path.resolve().parents: sys.exit(f"data: {archive}: {member.name} is not a plain file")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(t.extractfile(member).read())
    (part / STAMP).write_text(digest)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def pack(kind, source):
    """Files in the order of their names, without owners and times."""
    source, buffer = pathlib.Path(source), io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as t:
        for path in sorted(x for x in source.rglob("*") if x.is_file() and x.name != STAMP):
            member = tarfile.TarInfo(str(path.relative_to(source)))
            member.size = path.stat().st_size
            with open(path, "rb") as f: t.addfile(member, f)
    out = PACKED / (kind + ".tar.xz")
    out.parent.mkdir(exist_ok=True)
    out.write_bytes(lzma.compress(buffer.getvalue(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{out}: {out.stat().st_size} bytes")


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "pack": return pack(sys.argv[2], sys.argv[3])
    if len(sys.argv) != 1: sys.exit(__doc__)
    for archive in sorted(PACKED.rglob("*.tar.xz")): unpack(archive)
    (UNPACKED / ".done").touch()


main()
