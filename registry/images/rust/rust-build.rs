// SPDX-License-Identifier: Apache-2.0
//
// rust-build SOURCE: compiles /box/SOURCE to /tmp/main.
//
// Time is what counts here: the source is compiled in each run, by a share of a
// slow machine.  rustc.args has rustc call the linker mold without gcc in between.
//
// rust-build --warm: for a sandbox that waits for its program.  It leaves a rustc
// behind that has started and waits for its arguments: loading its libraries takes
// a third of the time of a small compilation.  (To have the tools' files touched
// by a compilation would save a tenth of the time, and cost all of it.)  rustc
// reads its arguments from a file that is a FIFO, which is all that makes it wait.
// The next rust-build hands them to it through a keeper, rust-build --keep, which
// is rustc's parent: it passes on what rustc says and how it ended.
use std::env;
use std::ffi::{CString, c_char, c_int};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio, exit};
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

const ARGS: &str = "@/usr/lib/isobox/rustc.args";
const WARM: &str = "/tmp/.rust-warm"; // gone before a program starts
const FIFO: &str = "/tmp/.rust-warm/args";
const SOCKET: &str = "/tmp/.rust-warm/socket";
const LIMITS: &str = "/tmp/.rust-warm/limits";
const SELF: &str = "/proc/self/exe";
const WAITING: &[u8] = b"waiting"; // the keeper's word to --warm
const O_NONBLOCK: i32 = 0o4000;
const ENXIO: i32 = 6;
/// For rustc to come to its arguments; some 100 ms are usual.
const PATIENCE: u32 = 5000;
const BROKEN: u8 = 125; // the exit code for what is not rustc's doing

unsafe extern "C" {
    fn mkfifo(path: *const c_char, mode: u32) -> c_int;
}

fn main() {
    let args: Vec<String> = env::args().collect();
    let result = match args.get(1).map(String::as_str) {
        Some("--warm") => warm(),
        Some("--keep") => keep(),
        Some(source) if args.len() == 2 => build(source),
        _ => {
            eprintln!("usage: rust-build SOURCE | --warm");
            exit(2);
        }
    };
    if let Err(e) = result {
        eprintln!("rust-build: {e}");
        exit(BROKEN.into());
    }
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

fn arguments(source: &str, bytes: u64) -> Vec<String> {
    let mut all = vec![ARGS.to_string()];
    if bytes <= OPTIMISE_UP_TO {
        all.extend(OPTIMISE.map(String::from));
    }
    // What begins like this would not be taken for a file.
    let prefix = if source.starts_with(['-', '@']) { "./" } else { "" };
    all.push(format!("{prefix}{source}"));
    all
}

fn build(source: &str) -> io::Result<()> {
    env::set_current_dir("/box")?;
    let args = arguments(source, source_bytes(Path::new("."))?);
    if Path::new(WARM).exists() {
        let code = if same_limits() { ask_keeper(&args) } else { None };
        fs::remove_dir_all(WARM)?;
        if let Some(code) = code {
            exit(code.into());
        }
    }
    Err(rustc().args(args).exec())
}

/// Whether the waiting rustc has the limits of this run.
fn same_limits() -> bool {
    match (fs::read(LIMITS), fs::read("/proc/self/limits")) {
        (Ok(then), Ok(now)) => then == now,
        _ => false,
    }
}

/// Has the waiting rustc compile; how it ended, or nothing if that is unknown.
fn ask_keeper(args: &[String]) -> Option<u8> {
    // Here ARGS is not a file of arguments but among them.
    let mut lines = fs::read_to_string(&ARGS[1..]).ok()?;
    for arg in &args[1..] {
        // A line can hold anything but its end.
        if arg.contains('\n') {
            return None;
        }
        lines.push_str(arg);
        lines.push('\n');
    }
    let mut keeper = UnixStream::connect(SOCKET).ok()?;
    keeper.write_all(lines.as_bytes()).ok()?;
    keeper.shutdown(Shutdown::Write).ok()?;
    forward(&mut keeper).ok()
}

/// Passes on what the keeper sends.  The last byte is the exit code.
fn forward(keeper: &mut UnixStream) -> io::Result<u8> {
    let mut stderr = io::stderr();
    let mut last: Option<u8> = None;
    let mut buffer = [0; 65536];
    loop {
        let n = keeper.read(&mut buffer)?;
        if n == 0 {
            return last.ok_or(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(byte) = last {
            stderr.write_all(&[byte])?;
        }
        stderr.write_all(&buffer[..n - 1])?;
        last = Some(buffer[n - 1]);
    }
}

fn warm() -> io::Result<()> {
    fs::create_dir(WARM)?;
    let mut keeper = Command::new(SELF)
        .arg("--keep")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut word = [0; WAITING.len()];
    if let Some(mut out) = keeper.stdout.take() {
        out.read_exact(&mut word)?;
    }
    Ok(())
}

fn make_fifo(path: &str) -> io::Result<()> {
    let path = CString::new(path)?;
    // SAFETY: path is a string that ends with NUL and outlives the call.
    if unsafe { mkfifo(path.as_ptr(), 0o600) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Opens the FIFO to write as soon as rustc has opened it to read.
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

fn keep() -> io::Result<()> {
    env::set_current_dir("/box")?;
    fs::write(LIMITS, fs::read("/proc/self/limits")?)?;
    make_fifo(FIFO)?;
    let listener = UnixListener::bind(SOCKET)?;
    let mut rustc = rustc()
        .arg(format!("@{FIFO}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let fifo = wait_for_reader(&mut rustc)?;
    io::stdout().write_all(WAITING)?;
    io::stdout().flush()?;
    let (client, _) = listener.accept()?;
    let status = serve(client.try_clone()?, fifo, rustc)?;
    (&client).write_all(&[exit_code(status)])
}

fn serve(mut client: UnixStream, mut fifo: File, mut rustc: Child) -> io::Result<ExitStatus> {
    let mut args = Vec::new();
    client.read_to_end(&mut args)?;
    fifo.write_all(&args)?;
    drop(fifo);
    if let Some(mut stderr) = rustc.stderr.take() {
        io::copy(&mut stderr, &mut client)?;
    }
    rustc.wait()
}

/// As a shell has it.
fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128 + signal as u8,
        (None, None) => BROKEN,
    }
}
