# SPDX-License-Identifier: Apache-2.0
"""isobox-image by its command line, in a directory of the test's own."""

import fcntl
import glob
import io
import os
import re
import shutil
import signal
import stat
import subprocess
import tarfile
import tempfile
import time
import unittest

import archives
from archives import BLK, CHR, DIR, FIFO, HARD, LINK, ROOTFS

REPO = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
NOBODY = 65534

TINY = """
suite=trixie
version=1.37
packages=(busybox-static)
variant=extract
finish() { put greeting /etc/greeting; }
reports() { in_root /usr/bin/busybox | sed -n '1s/^BusyBox v\\([0-9]*\\.[0-9]*\\).*/\\1/p'; }
check() {
    expect "the user" 65534 "$(in_root /usr/bin/busybox id -u)"
    ! in_root /usr/bin/busybox touch /etc/x 2>/dev/null || die "can write"
}
"""


def setUpModule():
    """A copy for other users: they may not see a checkout in somebody's
    home."""
    global TOOL, share
    share = tempfile.mkdtemp(prefix="isobox-test-images-")
    os.chmod(share, 0o755)
    for name in ("tools", "registry"):
        shutil.copytree(os.path.join(REPO, name), os.path.join(share, name))
    shutil.copy(os.path.join(REPO, "VERSION"), share)
    subprocess.run(["chmod", "-R", "go+rX", share], check=True)
    TOOL = os.path.join(share, "tools", "isobox-image")


def tearDownModule():
    shutil.rmtree(share)


def have(*programs):
    return all(shutil.which(p) for p in programs)


class Case(unittest.TestCase):
    user = None  # to run isobox-image as, when the test is root

    def setUp(self):
        self.top = tempfile.mkdtemp(prefix="isobox-test-images-")
        self.addCleanup(shutil.rmtree, self.top)
        os.chmod(self.top, 0o755)
        self.images = self.at("images")
        os.mkdir(self.images)
        if self.user is not None:
            os.chown(self.images, self.user, self.user)

    def at(self, *names):
        return os.path.join(self.top, *names)

    def image(self, *names):
        return os.path.join(self.images, *names)

    def argv(self, *words):
        return [TOOL, "-d", self.images, *words]

    def tool(self, *words, status=0, **env):
        who = {}
        if self.user is not None and os.getuid() == 0:
            who = {"user": self.user, "group": self.user, "extra_groups": []}
        run = subprocess.run(
            self.argv(*words), stdin=subprocess.DEVNULL, timeout=300,
            capture_output=True, text=True,
            env={**os.environ, "HOME": "/nonexistent", **env}, **who)
        self.assertEqual(run.returncode, status, run.stdout + run.stderr)
        self.assertEqual(glob.glob(self.image(".tmp*")), [])
        return run.stdout if status == 0 else run.stdout + run.stderr

    def lock(self):
        with open(self.image("images.lock")) as f:
            return dict(reversed(line.split()) for line in f)

    def states(self):
        lines = self.tool("list").splitlines()[1:]
        return {line.split()[0]: line.split()[-1] for line in lines}

    def read(self, *names):
        with open(self.image(*names)) as f:
            return f.read()


class Usage(Case):
    def test_help_and_version(self):
        self.assertIn("usage: isobox-image", self.tool("--help"))
        with open(os.path.join(REPO, "VERSION")) as f:
            self.assertEqual(self.tool("--version"),
                             "isobox-image " + f.read())

    def test_wrong_usage(self):
        for words in ([], ["frob"], ["--frob", "list"], ["import", "a"],
                      ["import", "../a", "f"], ["import", ".a", "f"],
                      ["import", "a.digest", "f"], ["import", "a/b", "f"],
                      ["build"], ["build", "--all", "x"], ["remove"],
                      ["list", "x"], ["list", "--force"], ["list", "-d"]):
            with self.subTest(words=words):
                self.assertIn("isobox-image: ", self.tool(*words, status=2))

    def test_empty_directory(self):
        self.assertEqual(self.states(), {})
        self.assertIn("there is no image", self.tool("verify", status=1))
        self.assertIn("no image nix", self.tool("remove", "nix", status=1))
        self.assertIn("no recipe", self.tool("build", "nix", status=1))


class Import(Case):
    user = NOBODY

    def imported(self, path, name="it"):
        self.tool("import", name, path)
        return self.image(name)

    def check_rootfs(self, root):
        self.assertEqual(self.states(), {"it": "ok"})
        self.assertEqual(self.tool("verify"), "it: ok\n")
        for name in ("proc", "sys", "dev/shm", "tmp", "box", "workspace",
                     "memory"):
            self.assertEqual(os.listdir(os.path.join(root, name)), [])
        self.assertEqual(os.listdir(os.path.join(root, "dev")), ["shm"])
        for name in ("usr/libexec/isobox/init", "etc/resolv.conf"):
            self.assertEqual(os.path.getsize(os.path.join(root, name)), 0)
        self.assertIn("::1\tlocalhost", self.read(root, "etc/hosts"))
        passwd = self.read(root, "etc/passwd").splitlines()
        self.assertEqual([x.split(":")[0] for x in passwd],
                         ["root", "nobody"])
        self.assertIn(":65534:65534:nobody:/tmp:", passwd[-1])
        self.assertIn("nogroup:x:65534:", self.read(root, "etc/group"))
        for folder, dirs, files in os.walk(root):
            for name in dirs + files:
                st = os.lstat(os.path.join(folder, name))
                if not stat.S_ISLNK(st.st_mode):
                    self.assertIn(stat.S_IMODE(st.st_mode), (0o755, 0o644))

    def check_tool(self, root):
        self.assertEqual(os.readlink(os.path.join(root, "bin")), "usr/bin")
        for name in ("tool", "other"):
            path = os.path.join(root, "usr/bin", name)
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o755)
            self.assertEqual(self.read(path), "#!/bin/sh\necho hi\n")
        self.assertEqual(self.read(root, "usr/secret"), "for nobody\n")

    def test_tar(self):
        root = self.imported(archives.make_tar(self.at("x"), ROOTFS))
        self.check_rootfs(root)
        self.check_tool(root)

    def test_compressed_tar(self):
        for kind in ("gz", "xz"):
            root = self.imported(archives.make_tar(
                self.at(kind), ROOTFS, "w:" + kind))
            self.check_tool(root)

    def test_tar_with_device_nodes_in_dev(self):
        self.check_rootfs(self.imported(archives.make_tar(self.at("x"), [
            *ROOTFS, ("./dev", DIR, None),
            ("./dev/null", CHR, None)])))

    def test_docker_archive(self):
        if not have("skopeo", "umoci"):
            self.skipTest("needs skopeo and umoci")
        root = self.imported(archives.make_docker(self.at("x"), [ROOTFS]))
        self.check_rootfs(root)
        self.check_tool(root)

    def test_oci_archive_with_layers(self):
        if not have("skopeo", "umoci"):
            self.skipTest("needs skopeo and umoci")
        root = self.imported(archives.make_oci(self.at("x"), [
            ROOTFS, [("usr/bin/.wh.absolute", b""), ("usr/new", b"2")]]))
        self.check_rootfs(root)
        self.check_tool(root)
        self.assertEqual(self.read(root, "usr/new"), "2")
        self.assertFalse(os.path.lexists(
            os.path.join(root, "usr/bin/absolute")))

    def test_digest_is_of_the_content(self):
        """Not of owners, times, hard links, or how it came."""
        self.imported(archives.make_tar(self.at("a"), ROOTFS), "a")
        digest = self.lock()["a"]
        again = self.at("again.tar")
        subprocess.run(["tar", "-C", self.image("a"), "--mtime=@1",
                        "--owner=7", "-cf", again, "."], check=True)
        self.imported(again, "b")
        self.assertEqual(self.lock(), {"a": digest, "b": digest})
        # On another machine it is recomputed from this.
        tar = subprocess.run(
            ["tar", "--create", "--sort=name", "--format=gnu", "--owner=0",
             "--group=0", "--numeric-owner", "--mtime=@0",
             "--hard-dereference", "."], cwd=self.image("b"), check=True,
            capture_output=True, env={**os.environ, "LC_ALL": "C"}).stdout
        self.assertEqual(archives.sha256(tar), digest)

    def test_replace(self):
        self.imported(archives.make_tar(self.at("a"), ROOTFS))
        old = self.lock()
        self.imported(archives.make_tar(
            self.at("b"), [*ROOTFS, ("usr/b", b"b")]))
        self.assertNotEqual(self.lock(), old)
        self.assertEqual(self.tool("verify", "it"), "it: ok\n")

    def test_odd_names(self):
        name = "usr/ a\n\\b\tü \udcff"
        root = self.imported(archives.make_tar(self.at("x y:z"), [
            *ROOTFS, (name, b"odd"), ("usr/" + "l" * 200, LINK, "x" * 150)]))
        self.assertEqual(self.read(root, name), "odd")
        self.tool("verify")


class Hostile(Case):
    user = NOBODY
    outside = None

    def setUp(self):
        super().setUp()
        self.victim = self.at("victim")
        with open(self.victim, "w") as f:
            f.write("untouched")
        os.chmod(self.victim, 0o666)

    def refused(self, entries, words, make=archives.make_tar):
        path = make(self.at("bad"), entries)
        said = self.tool("import", "bad", path, status=1)
        self.assertRegex(said, words)
        self.assertEqual(len(said.strip().splitlines()[-1:]), 1)
        self.assertFalse(os.path.exists(self.image("bad")))
        self.assertFalse(os.path.exists(self.image("images.lock")))
        with open(self.victim) as f:
            self.assertEqual(f.read(), "untouched")
        self.assertEqual(stat.S_IMODE(os.stat(self.victim).st_mode), 0o666)
        self.assertFalse(os.path.exists(self.at("new")))

    def test_names_that_leave(self):
        for name in ("/etc/x", "../new", "usr/../../new", "usr/..", "./../x"):
            with self.subTest(name=name):
                self.refused([*ROOTFS, (name, b"x")], "would leave")

    def test_links_that_leave(self):
        for target in ("../x", "../" * 40 + "etc/passwd", "/../x",
                       "a/../../x"):
            with self.subTest(target=target):
                self.refused([*ROOTFS, ("l", LINK, target)], "leads to")

    def test_writing_through_links(self):
        for target in (self.top, "../" * 40 + self.top[1:]):
            self.refused([*ROOTFS, ("l", LINK, target), ("l/new", b"x")],
                         "cannot unpack|leads to")

    def test_hard_links_that_leave(self):
        for target in (self.victim, "../" * 40 + self.victim[1:],
                       "usr/nothing"):
            with self.subTest(target=target):
                self.refused([*ROOTFS, ("h", HARD, target)],
                             "hard link|cannot unpack")

    def test_special_files(self):
        for kind in (CHR, BLK, FIFO):
            with self.subTest(kind=kind):
                self.refused([*ROOTFS, ("usr/n", kind, None)],
                             "device|cannot unpack")

    def test_folders_that_are_links(self):
        """Our own writing to /etc or /usr must not follow them."""
        for name in ("etc", "usr", "usr/libexec"):
            entries = [x for x in ROOTFS if not x[0].startswith(name)]
            with self.subTest(name=name):
                self.refused([*entries, ("file", b"x"),
                              (name, LINK, self.top)],
                             "/%s .* must be a directory" % name)

    def test_files_that_are_links(self):
        root = self.image("it")
        entries = [x for x in ROOTFS if x[0] != "etc/passwd"]
        entries += [(name, LINK, self.victim) for name in (
            "etc/passwd", "etc/group", "etc/hosts", "etc/resolv.conf",
            "proc", "dev", "box")]
        entries += [("usr/libexec", DIR, None),
                    ("usr/libexec/isobox", DIR, None),
                    ("usr/libexec/isobox/init", LINK, self.victim)]
        self.tool("import", "it", archives.make_tar(self.at("x"), entries))
        self.assertTrue(os.path.isdir(os.path.join(root, "box")))
        with open(self.victim) as f:
            self.assertEqual(f.read(), "untouched")

    def test_truncated(self):
        for mode in ("w", "w:gz", "w:xz"):
            path = archives.make_tar(
                self.at("whole"), [*ROOTFS, ("usr/big", os.urandom(50000))],
                mode)
            size = os.path.getsize(path)
            for keep in (0, 100, size // 2, size - 12000):
                with open(path, "rb") as f:
                    data = f.read(keep)
                with open(self.at("cut"), "wb") as f:
                    f.write(data)
                with self.subTest(mode=mode, keep=keep):
                    self.refused(None, "not a whole tar|empty|cannot unpack",
                                 lambda *_: self.at("cut"))

    def test_garbage_and_nothing(self):
        with open(self.at("garbage"), "wb") as f:
            f.write(b"\x00\xff" * 5000)
        self.refused(None, "not a whole tar", lambda *_: self.at("garbage"))
        self.refused([("usr", DIR, None)], "holds no file")
        self.tool("import", "bad", self.at("no-such-file"), status=1)
        self.tool("import", "bad", self.top, status=1)

    def test_layers(self):
        if not have("skopeo", "umoci"):
            self.skipTest("needs skopeo and umoci")
        for make in (archives.make_oci, archives.make_docker):
            self.refused([[("usr/x", b"x"), ("l", LINK, "../" * 20 + "x")]],
                         "leads to", make)
            for name in ("/new", "../new", "usr/../../../new"):
                self.tool("import", "it", make(self.at("x"), [
                    [*ROOTFS, ("l", LINK, self.top)],
                    [("l/new", b"through"), (name, b"x")]]))
                self.assertFalse(os.path.exists(self.at("new")))
                self.tool("remove", "it")
            os.unlink(self.image("images.lock"))

    def test_broken_layers(self):
        if not have("skopeo", "umoci"):
            self.skipTest("needs skopeo and umoci")
        for make in (archives.make_oci, archives.make_docker):
            path = make(self.at("whole"), [ROOTFS])
            with tarfile.open(path) as tar, \
                    tarfile.open(self.at("bad"), "w") as out:
                for m in tar:
                    data = tar.extractfile(m).read()
                    if b"echo hi" in data:
                        data = data.replace(b"echo hi", b"echo no")
                    out.addfile(m, io.BytesIO(data))
            self.refused(None, "cannot (read|unpack)",
                         lambda *_: self.at("bad"))


class Store(Case):
    def setUp(self):
        super().setUp()
        self.tool("import", "one", archives.make_tar(self.at("x"), ROOTFS))

    def changed(self, words="mismatch"):
        self.assertIn(words, self.tool("verify", "one", status=1))

    def test_verify_detects(self):
        path = self.image("one", "usr/secret")
        keep = os.stat(path)
        for change, back in (
                (lambda: open(path, "w").write("for nobodY\n"),
                 lambda: open(path, "w").write("for nobody\n")),
                (lambda: os.chmod(path, 0o755),
                 lambda: os.chmod(path, 0o644)),
                (lambda: os.rename(path, path + "2"),
                 lambda: os.rename(path + "2", path)),
                (lambda: open(path + "+", "w").close(),
                 lambda: os.unlink(path + "+")),
                (lambda: os.mkdir(path + "+"), lambda: os.rmdir(path + "+")),
                (lambda: os.symlink("x", path + "+"),
                 lambda: os.unlink(path + "+"))):
            change()
            os.utime(self.image("one", "usr"), (keep.st_mtime,) * 2)
            self.changed()
            back()
            self.assertEqual(self.tool("verify"), "one: ok\n")

    def test_states(self):
        shutil.copytree(self.image("one"), self.image("two"), symlinks=True)
        self.assertEqual(self.states(), {"one": "ok", "two": "unlocked"})
        self.changed_file("one.digest", "0" * 64 + "\n")
        self.assertEqual(self.states()["one"], "mismatch")
        self.changed("one.digest")
        os.unlink(self.image("one.digest"))
        self.assertEqual(self.states()["one"], "mismatch")
        shutil.rmtree(self.image("one"))
        os.symlink("two", self.image("one"))
        self.assertEqual(self.states()["one"], "missing")
        self.changed("missing")
        said = self.tool("verify", status=1)
        self.assertIn("one: missing", said)
        self.assertIn("two: images.lock has no line", said)

    def changed_file(self, name, text):
        with open(self.image(name), "w") as f:
            f.write(text)

    def test_remove(self):
        self.tool("import", "two", self.at("x"))
        self.assertEqual(set(self.lock()), {"one", "two"})
        self.tool("remove", "one")
        self.assertEqual(set(self.lock()), {"two"})
        self.assertEqual(sorted(os.listdir(self.images)),
                         [".lock", "images.lock", "two", "two.digest"])
        self.tool("remove", "one", status=1)

    def test_lock_is_sorted_and_well_formed(self):
        for name in ("z", "B", "a.b", "one-2", "1.0", "1.00"):
            self.tool("import", name, self.at("x"))
        text = self.read("images.lock")
        self.assertRegex(text, r"\A([0-9a-f]{64}  [A-Za-z0-9._-]+\n)+\Z")
        names = [line.split()[1] for line in text.splitlines()]
        self.assertEqual(len(names), 7)
        self.assertEqual(names, sorted(names))

    def test_stale_work_is_removed(self):
        os.makedirs(self.image(".tmp.dead", "root", "x"))
        self.tool("import", "one", self.at("x"))

    def test_waits_for_another(self):
        lock = os.open(self.image(".lock"), os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = subprocess.Popen(self.argv("import", "two", self.at("x")),
                               stdout=subprocess.PIPE, text=True)
        self.assertIn("waiting", run.stdout.readline())
        time.sleep(0.3)
        self.assertIsNone(run.poll())
        os.close(lock)
        self.assertEqual(run.wait(60), 0)
        run.stdout.close()
        self.assertEqual(self.states()["two"], "ok")

    def test_directory_that_cannot_be_written(self):
        class As(Store):
            user = NOBODY
        other = As("tool")
        other.top, other.images = self.top, self.images
        os.chmod(self.images, 0o755)
        said = other.tool("remove", "one", status=1)
        self.assertIn("cannot write in", said)
        self.assertEqual(other.tool("verify"), "one: ok\n")


@unittest.skipUnless(os.getuid() == 0 and have("mmdebstrap", "unshare"),
                     "building needs root and mmdebstrap")
class Build(Case):
    def setUp(self):
        super().setUp()
        self.registry = self.at("registry")
        os.makedirs(os.path.join(self.registry, "images", "tiny"))
        self.write("images/tiny/greeting", "hello\n")
        self.write("images/tiny/recipe", TINY)
        self.write("tiny.yaml", 'name: tiny\nversion: "1.37"\nimage: tiny\n')

    def write(self, name, text):
        with open(os.path.join(self.registry, name), "w") as f:
            f.write(text)

    def argv(self, *words):
        return super().argv("-r", self.registry, *words)

    def test_build(self):
        said = self.tool("build", "--all")
        self.assertRegex(said, r"\[ *\d+\.\d s\] tiny: Debian trixie from ")
        self.assertIn("tiny: checking", said)
        self.assertEqual(self.read("tiny", "etc/greeting"), "hello\n")
        self.assertEqual(os.listdir(self.image("tiny", "dev")), ["shm"])
        self.assertFalse(os.path.exists(self.image("tiny", "etc/apt")))
        self.assertEqual(self.tool("verify"), "tiny: ok\n")
        for path in glob.glob(self.image("tiny", "**"), recursive=True):
            st = os.lstat(path)
            self.assertFalse(st.st_mode & 0o7022 and
                             not stat.S_ISLNK(st.st_mode), path)
        # A second time it is left alone, until the recipe changes.
        inode = os.stat(self.image("tiny")).st_ino
        begun = time.monotonic()
        self.assertIn("is there and right", self.tool("build", "tiny"))
        self.assertLess(time.monotonic() - begun, 5)
        self.assertEqual(os.stat(self.image("tiny")).st_ino, inode)
        self.write("images/tiny/greeting", "good day\n")
        self.tool("build", "tiny")
        self.assertEqual(self.read("tiny", "etc/greeting"), "good day\n")
        # An imported image is nobody's to build again.
        self.tool("import", "tiny", archives.make_tar(self.at("x"), ROOTFS))
        self.assertIn("is there and right", self.tool("build", "tiny"))
        # It needs no recipe either.
        os.unlink(os.path.join(self.registry, "images/tiny/recipe"))
        self.assertIn("is there and right", self.tool("build", "--all"))

    def test_refusals(self):
        for change, words in (
                (("version=1.37", "version=1.36"), "says version 1.37"),
                (("busybox-static", "no-such-package"), "mmdebstrap failed"),
                (("put greeting", "put missing"), "missing"),
                (('"the user" 65534', '"the user" 0'), "the user: expected"),
                (("reports()", "xreports()"), "does not define reports"),
                (("suite=trixie", ""), "must set suite")):
            self.write("images/tiny/recipe", TINY.replace(*change))
            with self.subTest(words=words):
                said = self.tool("build", "tiny", status=1)
                self.assertIn(words, said)
                self.assertIn("not built: tiny", said)
        self.assertEqual(os.listdir(self.images), [".lock"])

    def test_dishonest_program(self):
        self.write("images/tiny/recipe", TINY.replace("1.37", "1.36"))
        self.write("tiny.yaml", "version: v1.36-x\nimage: tiny\n")
        self.assertIn('the version: expected "1.36", got "1.37"',
                      self.tool("build", "tiny", status=1))

    def test_needs_root(self):
        class As(Build):
            user = NOBODY
        other = As("tool")
        other.top, other.images = self.top, self.images
        other.registry = self.registry
        self.assertIn("build needs root",
                      other.tool("build", "tiny", status=1))

    def mirror_fails(self):
        self.assertIn("mmdebstrap failed", self.tool(
            "build", "tiny", status=1, MIRROR="http://127.0.0.1:9/debian"))

    def test_mirror(self):
        self.mirror_fails()

    def test_interrupted(self):
        """Whenever it is, nothing remains: no file, process or mount."""
        for sig, seconds in ((signal.SIGINT, 1.0), (signal.SIGTERM, 2.0),
                             (signal.SIGTERM, 3.0), (signal.SIGINT, 4.0),
                             (signal.SIGHUP, 6.0)):
            run = subprocess.Popen(self.argv("build", "tiny"),
                                   stdout=subprocess.PIPE, text=True,
                                   start_new_session=True)
            time.sleep(seconds)
            if run.poll() is None:
                run.send_signal(sig)
                out, _ = run.communicate(timeout=30)
                self.assertEqual(run.returncode, 128 + sig, out)
                self.assertEqual(os.listdir(self.images), [".lock"])
            else:
                run.communicate()
                self.tool("remove", "tiny")
            self.assertEqual(self.left_over(), "")

    def left_over(self):
        with open("/proc/self/mountinfo") as f:
            left = [line for line in f if self.top in line]
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                with open(path, "rb") as f:
                    line = f.read()
            except OSError:
                continue
            if self.top.encode() in line:
                left.append(repr(line))
        return "".join(left)

    def test_killed(self):
        """kill -9 leaves work that the next one removes."""
        run = subprocess.Popen(self.argv("build", "tiny"),
                               stdout=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while not glob.glob(self.image(".tmp.*", "root", "var")):
            self.assertLess(time.monotonic(), until)
            time.sleep(0.05)
        run.kill()
        run.wait()
        self.tool("build", "tiny")
        self.assertEqual(self.states(), {"tiny": "ok"})
        self.assertEqual(self.left_over(), "")


class Sources(unittest.TestCase):
    """What the recipes and the registry say, without building."""

    def files(self, *patterns):
        return sorted(f for p in patterns
                      for f in glob.glob(os.path.join(REPO, p)))

    def test_shellcheck(self):
        if not have("shellcheck"):
            self.skipTest("needs shellcheck")
        subprocess.run(
            ["shellcheck", "-x", "tools/isobox-image",
             *self.files("registry/images/*.bash", "registry/images/*/recipe",
                         "registry/images/*/*-build")], cwd=REPO, check=True)

    def test_every_image_has_a_recipe(self):
        found = set()
        for path in self.files("registry/*.yaml"):
            with open(path) as f:
                found.add(re.search(r"^image: (\S+)$", f.read(), re.M)[1])
        self.assertEqual(
            found, {os.path.basename(os.path.dirname(f))
                    for f in self.files("registry/images/*/recipe")})

    def test_no_host_is_named(self):
        for path in self.files("registry/**", "registry/images/**",
                               "registry/images/*/**", "tools/isobox-image"):
            if os.path.isfile(path):
                with open(path) as f:
                    self.assertNotRegex(f.read(), r"https?://\w", path)


if __name__ == "__main__":
    unittest.main()
