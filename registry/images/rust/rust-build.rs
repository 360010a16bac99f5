// SPDX-License-Identifier: Apache-2.0
//
// rust-build SOURCE: compiles /box/SOURCE to /tmp/main.
//
// Time is what counts here: the source is compiled in each run, by a share of a
// slow machine.  rustc.args has rustc call the linker mold without gcc in between.
//
// In a sandbox that waits for its program, isobox-init starts rust-build ahead and
// holds the other end of descriptor 1023 (guest/warm.c says what is spoken there).
// Then rust-build has a rustc load its libraries, a third of the time of a small
// compilation, and come to its arguments, which it reads from a file that is a FIFO.
// (To have the tools' files touched by a compilation would save a tenth of the
// time, and cost all of it.)  Whatever goes wrong with that rustc, another one is
// started whose verdict stands.
use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{FromRawFd, IntoRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, exit};
use std::thread::sleep;
use std::time::Duration;

/// Sources up to this many bytes are optimised, by the few passes of LLVM that
/// make a program run about as fast as -O1 does: seven times as fast as without,
/// for a compilation twice as long, not three times.  A larger program could
/// spend all its time in the compiler.
const OPTIMISE_UP_TO: u64 = 4096;
const OPTIMISE: [&str; 5] = [
    "-Copt-level=1",
    "-Ccodegen-units=1",
    "-Clto=off",
    "-Cno-prepopulate-passes",
    "-Cpasses=cgscc(inline),sroa,early-cse,simplifycfg",
];

/// Memory that malloc gives back to gVisor must be faulted in anew, which costs
/// more than it saves: a quarter of the time.
const MALLOC: [(&str, &str); 3] = [
    ("MALLOC_TOP_PAD_", "33554432"),
    ("MALLOC_TRIM_THRESHOLD_", "1073741824"),
    ("MALLOC_MMAP_THRESHOLD_", "1073741824"),
];

const ARGS: &str = "/usr/lib/isobox/rustc.args";
const FIFO: &str = "/tmp/.rustc.args"; // gone before a program starts
const WARM_FD: i32 = 1023; // guest/child.h
const O_NONBLOCK: i32 = 0o4000;
const ENXIO: i32 = 6;
/// Milliseconds for rustc to come to its arguments; some 100 are usual.
const PATIENCE: u32 = 10000;

fn main() {
    let args: Vec<String> = env::args().collect();
    if args.len() != 2 {
        eprintln!("usage: rust-build SOURCE");
        exit(2);
    }
    if let Err(e) = build(&args[1]) {
        eprintln!("rust-build: {e}");
        exit(1);
    }
}

fn build(source: &str) -> io::Result<()> {
    env::set_current_dir("/box")?;
    let mut waiting = None;
    if let Some(init) = init_socket()? {
        waiting = wait_for_job(init)?;
    }
    let args = arguments(source, source_bytes(Path::new("."))?);
    if let Some((rustc, fifo)) = waiting {
        if let Some(code) = go_on(rustc, fifo, &args) {
            exit(code);
        }
    }
    Err(rustc().arg(format!("@{ARGS}")).args(args).exec())
}

fn rustc() -> Command {
    let mut rustc = Command::new("rustc");
    rustc.envs(MALLOC);
    rustc
}

/// The bytes of all sources below a folder; links are not followed.
fn source_bytes(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let path = entry.path();
        if kind.is_dir() {
            bytes += source_bytes(&path)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}

/// Those that rustc.args does not have.
fn arguments(source: &str, bytes: u64) -> Vec<String> {
    let mut all = Vec::new();
    if bytes <= OPTIMISE_UP_TO {
        all.extend(OPTIMISE.map(String::from));
    }
    // It would be taken for a file of arguments.
    let prefix = if source.starts_with('@') { "./" } else { "" };
    all.push(format!("{prefix}{source}"));
    all
}

/// The way to isobox-init, if this is a sandbox that waits.
fn init_socket() -> io::Result<Option<UnixStream>> {
    // SAFETY: whatever it is, nobody else here uses it; if it is not open,
    // into_raw_fd() keeps it from being closed.
    let given = unsafe { UnixStream::from_raw_fd(WARM_FD) };
    if given.local_addr().is_err() {
        let _ = given.into_raw_fd();
        return Ok(None);
    }
    // The copy is closed in rustc.
    given.try_clone().map(Some)
}

/// Speaks with isobox-init until the job is there.
fn wait_for_job(mut init: UnixStream) -> io::Result<Option<(Child, File)>> {
    let mut heard = BufReader::new(init.try_clone()?);
    init.write_all(b"compiler\n")?;
    read_message(&mut heard)?; // code, of which there is none
    read_message(&mut heard)?; // modules, likewise
    let waiting = start_rustc();
    init.write_all(b"ready\n")?;
    read_message(&mut heard)?; // the job, whose files are there
    init.write_all(b"go\n")?;
    Ok(waiting.ok())
}

/// Its length in decimal, a line feed, and that many bytes.
fn read_message(from: &mut impl BufRead) -> io::Result<()> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let length = line.trim_end().parse().map_err(io::Error::other)?;
    let copied = io::copy(&mut from.take(length), &mut io::sink())?;
    if copied < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

/// A rustc that has come to its arguments, and where they are to be written.
fn start_rustc() -> io::Result<(Child, File)> {
    let made = Command::new("mkfifo").arg(FIFO).status()?;
    if !made.success() {
        return Err(io::Error::other("mkfifo failed"));
    }
    let mut rustc = rustc().arg(format!("@{FIFO}")).spawn()?;
    let fifo = wait_for_reader(&mut rustc);
    fs::remove_file(FIFO)?;
    match fifo {
        Ok(fifo) => Ok((rustc, fifo)),
        Err(e) => {
            rustc.kill()?;
            Err(e)
        }
    }
}

/// A FIFO can be opened for writing as soon as somebody has opened it to read.
fn wait_for_reader(rustc: &mut Child) -> io::Result<File> {
    for _ in 0..PATIENCE {
        let opened = OpenOptions::new()
            .write(true)
            .custom_flags(O_NONBLOCK)
            .open(FIFO);
        match opened {
            Err(e) if e.raw_os_error() == Some(ENXIO) => {}
            other => return other,
        }
        if let Some(status) = rustc.try_wait()? {
            return Err(io::Error::other(format!("rustc: {status}")));
        }
        sleep(Duration::from_millis(1));
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Has the waiting rustc compile; its exit code, if it came to its own end.
fn go_on(mut rustc: Child, mut fifo: File, args: &[String]) -> Option<i32> {
    let mut lines = fs::read_to_string(ARGS).ok()?;
    for arg in args {
        // A line can hold anything but its end.
        if arg.contains('\n') {
            rustc.kill().ok()?;
            return None;
        }
        lines.push_str(arg);
        lines.push('\n');
    }
    fifo.write_all(lines.as_bytes()).ok()?;
    drop(fifo);
    rustc.wait().ok()?.code()
}
