//! A host of a lab: a network namespace in which commands and closures run.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use libbpf_sys::bpf_insn;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::cgroup::CpuGroup;
use crate::error::{Doing, Error, Result};
use crate::netns::{self, NetNs};
use crate::process::{Process, open_pidfd, wait_readable};
use crate::teardown::Shared;
use crate::topology::{HostPlan, Link, ROUTER, Role};

/// Default time limit of a command.
const RUN_TIMEOUT: Duration = Duration::from_secs(30);

/// A host of a lab. Clones are handles to the same host.
#[derive(Clone, Debug)]
pub struct Host {
    plan: HostPlan,
    namespace: NetNs,
    net: NetNs,
    shared: Arc<Shared>,
    cpu: Arc<OnceLock<CpuGroup>>,
}

/// Exit status and output of a command.
#[derive(Clone, Debug)]
pub struct Output {
    /// The command line.
    pub command: String,
    /// Its exit status.
    pub status: ExitStatus,
    /// Its stdout, with U+FFFD for invalid UTF-8.
    pub stdout: String,
    /// Its stderr, with U+FFFD for invalid UTF-8.
    pub stderr: String,
}

impl Output {
    /// The standard output of a command that exited with status 0; an error otherwise.
    pub fn success(self) -> Result<String> {
        if self.status.success() {
            return Ok(self.stdout);
        }
        let output = if self.stderr.is_empty() { self.stdout } else { self.stderr };
        Err(Error::Command { command: self.command, status: self.status, output })
    }
}

impl Host {
    pub(crate) fn new(plan: HostPlan, namespace: NetNs, net: NetNs, shared: Arc<Shared>) -> Result<Host> {
        let host = Host { plan, namespace, net, shared, cpu: Arc::default() };
        fs::create_dir(host.directory()).doing(|| format!("create {}", host.directory().display()))?;
        Ok(host)
    }

    /// Its name in the lab, such as `node0`.
    pub fn name(&self) -> &str {
        &self.plan.name
    }

    /// Its role.
    pub fn role(&self) -> Role {
        self.plan.role
    }

    /// The name of its network namespace, for `ip netns` and `nsenter --net=/run/netns/<name>`.
    pub fn namespace_name(&self) -> &str {
        self.namespace.name()
    }

    /// The IPv4 address of `eth0`.
    pub fn ipv4(&self) -> Ipv4Addr {
        self.plan.links[0].ipv4
    }

    /// The IPv6 address of `eth0`.
    pub fn ipv6(&self) -> Ipv6Addr {
        self.plan.links[0].ipv6
    }

    /// Its interfaces with their addresses, `eth0` first.
    pub fn interfaces(&self) -> Vec<(&str, Ipv4Addr, Ipv6Addr)> {
        self.plan.links.iter().map(|link| (link.interface.as_str(), link.ipv4, link.ipv6)).collect()
    }

    /// The host's own directory: logs, configurations. Removed with the lab.
    pub fn directory(&self) -> PathBuf {
        self.shared.info.directory.join(self.name())
    }

    /// A command whose process will be in the host's network namespace, with the caller's mounts. The caller starts it;
    /// the lab's teardown ends it at the latest.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        self.namespace.attach(&mut command);
        command
    }

    /// Starts a command in the host's network. Its output goes to `<name>.log` in the host's directory; it runs until
    /// it ends, is stopped or the lab is taken down.
    pub fn spawn(&self, name: &str, mut command: Command) -> Result<Process> {
        self.namespace.attach(&mut command);
        self.cpu.get().into_iter().for_each(|group| group.attach(&mut command));
        let log = self.directory().join(format!("{name}.log"));
        self.shared.track(|| Process::start(&format!("{}/{name}", self.name()), &mut command, log))
    }

    /// The newest process that was spawned on this host by this name, whether it still runs or not.
    pub fn process(&self, name: &str) -> Option<Process> {
        let name = format!("{}/{name}", self.name());
        self.shared.processes().into_iter().rev().find(|process| process.name() == name)
    }

    /// Creates a control group for processes spawned on this host from now on, for [`limit_cpu`](Self::limit_cpu).
    /// Called at most once for each host.
    pub fn group_cpu(&self) -> Result<()> {
        let name = self.shared.info.cpu_group(self.name());
        let group = self.shared.while_up(|| CpuGroup::create(&name))?;
        self.cpu
            .set(group)
            .map_err(|_| Error::Invalid(format!("{} has a control group already", self.name())))
    }

    /// Limits the sum of the processes in the host's control group to this many thousandths of one CPU. Processes start
    /// faster without a limit.
    pub fn limit_cpu(&self, thousandths: u32) -> Result<()> {
        let missing = || Error::NotFound(format!("{} has no control group", self.name()));
        self.cpu.get().ok_or_else(missing)?.limit(thousandths)
    }

    /// Runs a command to its end, for at most 30 seconds. The result is `Ok` for any exit status; see
    /// [`Output::success`].
    pub fn run<I: IntoIterator<Item: AsRef<OsStr>>>(&self, words: I) -> Result<Output> {
        self.run_within(RUN_TIMEOUT, words)
    }

    /// Runs a command to its end; after `timeout`, kills it with its child processes.
    pub fn run_within<I: IntoIterator<Item: AsRef<OsStr>>>(
        &self,
        timeout: Duration,
        words: I,
    ) -> Result<Output> {
        let mut words = words.into_iter();
        let program = words.next().ok_or_else(|| Error::Invalid("a command needs a program".to_owned()))?;
        let mut command = self.command(program);
        command.args(words);
        let shown = netns::show(&command);
        // Files rather than pipes need no reader while the command runs, and a process that outlives the command does
        // not delay the end of its output.
        let (stdout, stderr) = (memory_file()?, memory_file()?);
        let clone = |file: &File| file.try_clone().doing(|| format!("duplicate the output of `{shown}`"));
        command.stdin(Stdio::null()).stdout(clone(&stdout)?).stderr(clone(&stderr)?).process_group(0);
        let mut child = self.shared.while_up(|| command.spawn().doing(|| format!("start `{shown}`")))?;
        let pid = child.id().cast_signed();
        let ended = wait_readable(&[open_pidfd(pid)?.as_fd()], timeout)?;
        if !ended {
            killpg(Pid::from_raw(pid), Signal::SIGKILL).doing(|| format!("kill `{shown}`"))?;
        }
        let status = child.wait().doing(|| format!("wait for `{shown}`"))?;
        let output = Output { command: shown, status, stdout: contents(stdout)?, stderr: contents(stderr)? };
        if ended {
            return Ok(output);
        }
        let waiting_for = format!("end of `{}`", output.command);
        Err(Error::Timeout { waiting_for, after: timeout, log: output.stdout + &output.stderr })
    }

    /// Runs a closure on a thread in the host's network and returns its result. Sockets opened there stay in that
    /// network.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        self.namespace.enter(work)
    }

    /// Connects from this host.
    pub fn tcp_connect(&self, to: SocketAddr, timeout: Duration) -> Result<TcpStream> {
        self.enter(|| TcpStream::connect_timeout(&to, timeout))?
            .doing(|| format!("connect from {} to {to}", self.name()))
    }

    /// Listens on this host.
    pub fn tcp_listen(&self, on: SocketAddr) -> Result<TcpListener> {
        self.enter(|| TcpListener::bind(on))?.doing(|| format!("listen on {on} at {}", self.name()))
    }

    /// Opens a UDP socket on this host.
    pub fn udp_bind(&self, on: SocketAddr) -> Result<UdpSocket> {
        self.enter(|| UdpSocket::bind(on))?.doing(|| format!("bind UDP {on} at {}", self.name()))
    }

    /// Sends one ICMP echo and waits up to a second for the answer.
    pub fn ping(&self, to: impl Into<IpAddr>) -> Result<()> {
        self.run(["ping", "-n", "-c", "1", "-W", "1", &to.into().to_string()])?.success().map(drop)
    }

    /// Sets values below `/proc/sys/net` in the host's network namespace.
    pub fn sysctl(&self, settings: &[(&str, &str)]) -> Result<()> {
        self.namespace().sysctl(settings)
    }

    pub(crate) fn namespace(&self) -> &NetNs {
        &self.namespace
    }

    /// Attaches the XDP program to the bridge's port, without which `XDP_TX` from the host is delayed, or detaches it.
    /// Switches have it from the start. It disables the host's segmentation offload, so measurements of other programs
    /// are made without it.
    pub fn set_xdp_port(&self, attached: bool) -> Result<()> {
        let pass = crate::xdp::pass();
        let program = attached.then_some(&pass[..]);
        self.links().iter().try_for_each(|link| crate::xdp::set(self.net(), &link.port, program))
    }

    /// Attaches an XDP program to `eth0`, where it stays.
    pub fn attach_xdp(&self, program: &[bpf_insn]) -> Result<()> {
        crate::xdp::set(&self.namespace, "eth0", Some(program))
    }

    /// Turns GRO at the bridge's port on or off. With it on, or with an XDP program, the port takes what XDP redirects to
    /// the host's interface; a veth has neither as `ip link add` makes it.
    pub fn set_gro_port(&self, on: bool) -> Result<()> {
        let state = if on { "on" } else { "off" };
        self.links()
            .iter()
            .try_for_each(|link| self.net().tool(&["ethtool", "-K", &link.port, "gro", state], "").map(drop))
    }

    /// The namespace of the bridges.
    pub(crate) fn net(&self) -> &NetNs {
        &self.net
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn links(&self) -> &[Link] {
        &self.plan.links
    }

    pub(crate) fn link(&self, interface: &str) -> Result<&Link> {
        self.links()
            .iter()
            .find(|link| link.interface == interface)
            .ok_or_else(|| Error::NotFound(format!("{} has no interface {interface}", self.name())))
    }

    /// The router's namespace, if the lab has one.
    pub(crate) fn router_namespace(&self) -> Result<Option<NetNs>> {
        let router = self.shared.info.hosts.iter().find(|host| host.name == ROUTER);
        router.map(|router| NetNs::open(&router.namespace)).transpose()
    }

    pub(crate) fn lab_directory(&self) -> &std::path::Path {
        &self.shared.info.directory
    }
}

fn memory_file() -> Result<File> {
    let fd: OwnedFd =
        memfd_create(c"output", MFdFlags::MFD_CLOEXEC).doing(|| "make a file in memory".to_owned())?;
    Ok(File::from(fd))
}

fn contents(mut file: File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()
        .and_then(|()| file.read_to_end(&mut bytes))
        .doing(|| "read the output of a command".to_owned())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
