//! Starts, stops and kills the processes of a test, and reads what they print.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The environment variable that makes this program a child process.
pub(crate) const ROLE: &str = "ATMESH_TEST_ROLE";

/// Returns the time in milliseconds, which processes can compare.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Returns a port that is free now.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A process of a test. It is killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    folder: PathBuf,
}

/// What a process left: its status, and what it printed.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Returns the time and the text of the error that the process printed.
    pub(crate) fn error(&self) -> (u64, &str) {
        let (_, rest) = self.stdout.split_once("failed at ").unwrap_or_else(|| panic!("no error: {self:?}"));
        let (time, text) = rest.split_once(": ").unwrap();
        (time.parse().unwrap(), text)
    }
    pub(crate) fn assert_success(&self) {
        assert!(self.status.success(), "{self:#?}");
    }
}

impl Process {
    /// Starts a child process with a role and more variables.
    pub(crate) fn start(role: &str, variables: &[(&str, String)]) -> Process {
        let program = std::env::current_exe().unwrap();
        let arguments = ["child", "--exact", "--nocapture", "--test-threads=1"];
        let role = vec![(ROLE, role.to_string())];
        Process::start_program(&program, &arguments, &[role, variables.to_vec()].concat())
    }
    /// Starts a program with arguments and more variables.
    pub(crate) fn start_program(program: &Path, arguments: &[&str], variables: &[(&str, String)]) -> Process {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("atmesh-processes-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let child = Command::new(program)
            .args(arguments)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(File::create(folder.join("stdout")).unwrap())
            .stderr(File::create(folder.join("stderr")).unwrap())
            .spawn()
            .unwrap();
        Process { child, folder }
    }
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
    pub(crate) fn stdout(&self) -> String {
        std::fs::read_to_string(self.folder.join("stdout")).unwrap()
    }
    /// Waits until the process has printed a text.
    pub(crate) fn wait_for(&self, text: &str) {
        self.wait_for_any(&[text]);
    }
    /// Waits until the process has joined the others, or has failed because one of them did.
    #[allow(dead_code, reason = "not all tests that include this file use it")]
    pub(crate) fn wait_until_joined(&self) {
        self.wait_for_any(&["joined", "failed at"]);
    }
    fn wait_for_any(&self, texts: &[&str]) {
        let end = Instant::now() + Duration::from_secs(20);
        while !texts.iter().any(|text| self.stdout().contains(text)) {
            assert!(Instant::now() < end, "the process prints none of {texts:?}: {}", self.stdout());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status();
        assert!(status.unwrap().success());
    }
    /// Waits for the end, at most for `time`.
    pub(crate) fn wait(mut self, time: Duration) -> Ended {
        let end = Instant::now() + time;
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() > end => {
                    let (out, err) = (self.stdout(), std::fs::read_to_string(self.folder.join("stderr")));
                    panic!("process {} does not end: {out}\n{}", self.pid(), err.unwrap());
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let stderr = std::fs::read_to_string(self.folder.join("stderr")).unwrap();
        Ended { status, stdout: self.stdout(), stderr }
    }
    /// Kills the process, and checks that it was alive.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(9));
    }
}
impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Kills a process. Checks that each of the others ends within 2 s by an error that names it and a
/// line of `file`, and returns how they ended.
pub(crate) fn kill_one(
    role: &str,
    mut all: Vec<Process>,
    victim: usize,
    file: &str,
    limit: Duration,
) -> Vec<Ended> {
    let victim_process = all.remove(victim);
    let name = format!("pid {}) is gone", victim_process.pid());
    let killed = now_ms();
    victim_process.kill();
    let others = wait_all(all, limit);
    for ended in &others {
        let (time, error) = ended.error();
        assert!(error.contains(&format!("process {victim} (")) && error.contains(&name), "{error}");
        assert!(error.contains(&format!("{file}:")), "no source line: {error}");
        assert!(time.saturating_sub(killed) < 2000, "{} ms: {error}", time - killed);
        println!("{role}, {victim} killed: {} ms", time.saturating_sub(killed));
    }
    others
}

/// The variables of one process of a cluster on this machine.
pub(crate) fn variables(process: usize, processes: usize, port: u16) -> Vec<(&'static str, String)> {
    vec![
        ("ATMESH_PROCESS", format!("{process}/{processes}")),
        ("ATMESH_COORDINATOR", format!("127.0.0.1:{port}")),
        ("ATMESH_JOIN_TIMEOUT", "20".into()),
    ]
}

/// Starts all processes of a cluster.
pub(crate) fn start_all(
    role: &str,
    processes: usize,
    port: u16,
    more: &[(&'static str, &str)],
) -> Vec<Process> {
    let more: Vec<_> = more.iter().map(|(name, value)| (*name, value.to_string())).collect();
    (0..processes)
        .map(|k| Process::start(role, &[variables(k, processes, port), more.clone()].concat()))
        .collect()
}

/// Waits for the end of all processes.
pub(crate) fn wait_all(all: Vec<Process>, time: Duration) -> Vec<Ended> {
    all.into_iter().map(|process| process.wait(time)).collect()
}
