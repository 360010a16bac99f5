# SPDX-License-Identifier: Apache-2.0
"""Archives for isobox-image to import: good ones, and hostile ones."""

import hashlib
import io
import json
import tarfile

DIR, LINK, HARD, CHR, BLK, FIFO = "dir", "link", "hard", "chr", "blk", "fifo"
TYPES = {DIR: tarfile.DIRTYPE, LINK: tarfile.SYMTYPE, HARD: tarfile.LNKTYPE,
         CHR: tarfile.CHRTYPE, BLK: tarfile.BLKTYPE, FIFO: tarfile.FIFOTYPE}

# A root file system, small but with what they have.
ROOTFS = [
    ("bin", LINK, "usr/bin"),
    ("etc", DIR, None),
    ("etc/passwd", b"root:x:0:0::/root:/bin/sh\nnobody:x:99:99::/:/bin/x\n"),
    ("etc/mtab", LINK, "../proc/self/mounts"),
    ("usr", DIR, None),
    ("usr/bin", DIR, None),
    ("usr/bin/tool", b"#!/bin/sh\necho hi\n", 0o4755),
    ("usr/bin/other", HARD, "usr/bin/tool"),
    ("usr/bin/absolute", LINK, "/usr/bin/tool"),
    ("usr/secret", b"for nobody\n", 0o600),
    ("usr/closed", DIR, None, 0o000),
    ("tmp", DIR, None, 0o1777),
]


def add(tar, name, *what):
    """(name, data[, mode]) or (name, type, target[, mode])."""
    info = tarfile.TarInfo(name)
    if isinstance(what[0], bytes):
        data, mode = what[0], (what[1:] or (0o644,))[0]
        info.size = len(data)
    else:
        info.type, info.linkname = TYPES[what[0]], what[1] or ""
        data, mode = b"", (what[2:] or (0o755,))[0]
    info.mode = mode
    info.mtime = 1700000000
    tar.addfile(info, io.BytesIO(data))


def make_tar(path, entries, mode="w"):
    with tarfile.open(path, mode) as tar:
        for entry in entries:
            add(tar, *entry)
    return path


def tar_bytes(entries):
    f = io.BytesIO()
    with tarfile.open(fileobj=f, mode="w") as tar:
        for entry in entries:
            add(tar, *entry)
    return f.getvalue()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def config_json(layers):
    return json.dumps({
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": {"type": "layers",
                   "diff_ids": ["sha256:" + sha256(x) for x in layers]},
    }).encode()


def make_docker(path, layers):
    """What `docker save` writes."""
    layers = [tar_bytes(x) for x in layers]
    config = config_json(layers)
    names = ["%s/layer.tar" % sha256(x) for x in layers]
    entries = list(zip(names, layers))
    entries.append((sha256(config) + ".json", config))
    manifest = [{"Config": sha256(config) + ".json",
                 "RepoTags": ["image:latest"], "Layers": names}]
    entries.append(("manifest.json", json.dumps(manifest).encode()))
    return make_tar(path, entries)


def make_oci(path, layers):
    """An OCI image layout in a tar."""
    layers = [tar_bytes(x) for x in layers]
    blobs = []

    def blob(kind, data):
        blobs.append(("blobs/sha256/" + sha256(data), data))
        return {"mediaType": "application/vnd.oci.image." + kind,
                "digest": "sha256:" + sha256(data), "size": len(data)}

    manifest = json.dumps({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob("config.v1+json", config_json(layers)),
        "layers": [blob("layer.v1.tar", x) for x in layers],
    }).encode()
    index = {"schemaVersion": 2, "manifests": [
        blob("manifest.v1+json", manifest)]}
    return make_tar(path, [
        ("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'),
        ("index.json", json.dumps(index).encode()), *blobs])
