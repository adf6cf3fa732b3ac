//! A release: each package installs, works, and leaves nothing behind, on this machine's file system, to whose files all
//! changes are made in memory; and the archive has the same files. An image for containers has what the program needs.

mod common;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::thread;

use common::{PROGRAM, Result, markdown, said_by, text};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// A file system that has this machine's files until they are changed, and is gone with the calling thread, whose
/// processes alone see it.
struct Machine {
    root: PathBuf,
    /// What is not as on this machine.
    changed: PathBuf,
}

impl Machine {
    fn copy() -> Result<Machine> {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("machine");
        fs::create_dir_all(&place)?;
        let (root, changed, work) = (place.join("root"), place.join("changed"), place.join("work"));
        let none: Option<&str> = None;
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        // The upper directory of an overlay cannot be on another one, such as a container's.
        mount(Some("tmpfs"), &place, Some("tmpfs"), MsFlags::empty(), none)?;
        [&root, &changed, &work].into_iter().try_for_each(fs::create_dir)?;
        let layers = format!("lowerdir=/,upperdir={},workdir={}", text(&changed), text(&work));
        mount(Some("overlay"), &root, Some("overlay"), MsFlags::empty(), Some(&*layers))?;
        for directory in ["/proc", "/sys", "/dev"] {
            let place = root.join(&directory[1..]);
            mount(Some(directory), &place, none, MsFlags::MS_BIND | MsFlags::MS_REC, none)?;
        }
        mount(Some("bpf"), &root.join("sys/fs/bpf"), Some("bpf"), MsFlags::empty(), Some("mode=700"))?;
        for directory in ["run", "tmp"] {
            mount(Some("tmpfs"), &root.join(directory), Some("tmpfs"), MsFlags::empty(), Some("mode=755"))?;
        }
        Ok(Machine { root, changed })
    }

    /// What a command that ends with status 0 says.
    fn run<S: AsRef<OsStr>>(&self, words: &[S]) -> Result<String> {
        let mut command = Command::new("chroot");
        command.arg(&self.root).args(words).env("DEBIAN_FRONTEND", "noninteractive").current_dir("/");
        said_by(&mut command)
    }

    /// The files, and the directories that this machine does not have, without those in which dpkg, rpm, systemd and man
    /// keep their books.
    fn changes(&self) -> Result<BTreeSet<String>> {
        const BOOKS: [&str; 6] = [
            "/etc/systemd/system/multi-user.target.wants",
            "/var/cache/man/",
            "/var/lib/dpkg/",
            "/root/.rpmdb",
            "/var/lib/systemd/deb-systemd-",
            "/var/log/dpkg.log",
        ];
        let mut found = BTreeSet::new();
        let mut directories = vec![self.changed.clone()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory)? {
                let path = entry?.path();
                let name = format!("/{}", text(path.strip_prefix(&self.changed)?));
                let is_directory = path.symlink_metadata()?.is_dir();
                let is_new = Path::new(&name).symlink_metadata().is_err();
                if (is_new || !is_directory) && !BOOKS.iter().any(|book| name.starts_with(book)) {
                    found.insert(name);
                }
                if is_directory {
                    directories.push(path);
                }
            }
        }
        Ok(found)
    }
}

/// The files of a release.
struct Release {
    archive: PathBuf,
    deb: PathBuf,
    rpm: PathBuf,
    sums: PathBuf,
}

/// That of the program of this build. Hardly compressed, which would take longer than all else here.
static RELEASE: LazyLock<Release> = LazyLock::new(|| {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("release");
    let mut script = Command::new(markdown::repository().join("packaging/dist"));
    let said = said_by(script.args([PROGRAM, text(&directory)]).env("LEVEL", "1"));
    let mut names =
        said.expect("packaging/dist works").lines().map(PathBuf::from).collect::<Vec<_>>().into_iter();
    let [archive, deb, rpm, sums] = std::array::from_fn(|_| names.next().expect("it has four files"));
    Release { archive, deb, rpm, sums }
});

/// On a thread of its own, whose mounts go with it.
fn on_a_copy(work: impl FnOnce(&Machine) -> Result + Send) -> Result {
    thread::scope(|scope| {
        let thread = scope.spawn(|| work(&Machine::copy()?));
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn it_installs_works_and_goes_without_a_trace() -> Result {
    on_a_copy(|machine| {
        fs::copy(&RELEASE.deb, machine.root.join("tmp/switchback.deb"))?;
        assert_eq!(machine.changes()?, BTreeSet::new());
        // Images of containers often leave pages and documents out.
        machine.run(&["dpkg", "--path-include=*", "--install", "/tmp/switchback.deb"])?;
        let installed = machine.changes()?;
        let list = machine.run(&["dpkg", "--listfiles", "switchback"])?;
        let listed: BTreeSet<String> = list.lines().map(str::to_owned).collect();
        assert_eq!(installed.difference(&listed).collect::<Vec<_>>(), Vec::<&String>::new());
        it_is_whole(machine, "vendor-completions")?;
        it_works(machine)?;

        // What the administrator makes, and what the units do.
        machine.run(&["cp", "/usr/share/doc/switchback/examples/cluster.toml", "/etc/switchback/"])?;
        machine.run(&["switchback", "keygen", "/etc/switchback/cluster.key"])?;
        machine.run(&["switchback", "check"])?;
        machine.run(&["systemctl", "enable", "switchback-node.service"])?;
        fs::create_dir(machine.root.join("var/log/switchback"))?;
        fs::write(machine.root.join("var/log/switchback/access.log"), "{}\n")?;
        fs::create_dir(machine.root.join("var/lib/switchback"))?;
        machine.run(&["dpkg", "--install", "/tmp/switchback.deb"])?;

        machine.run(&["dpkg", "--remove", "switchback"])?;
        let enabled = machine.root.join("etc/systemd/system/multi-user.target.wants/switchback-node.service");
        assert!(enabled.is_symlink());
        let administrators =
            ["/etc/switchback", "/etc/switchback/cluster.key", "/etc/switchback/cluster.toml"];
        let kept = [
            "/etc/default/switchback",
            "/etc/logrotate.d/switchback",
            "/var/lib/switchback",
            "/var/log/switchback",
            "/var/log/switchback/access.log",
        ];
        let names =
            |names: &[&[&str]]| names.concat().into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
        assert_eq!(machine.changes()?, names(&[&administrators, &kept]));
        machine.run(&["dpkg", "--purge", "switchback"])?;
        assert_eq!(machine.changes()?, names(&[&administrators]));
        assert!(!enabled.is_symlink());

        // Without them nothing is left.
        machine.run(&["dpkg", "--install", "/tmp/switchback.deb"])?;
        administrators[1..].iter().try_for_each(|name| fs::remove_file(machine.root.join(&name[1..])))?;
        machine.run(&["dpkg", "--purge", "switchback"])?;
        assert_eq!(machine.changes()?, BTreeSet::new());
        Ok(())
    })
}

#[test]
fn the_rpm_does_too() -> Result {
    on_a_copy(|machine| {
        fs::copy(&RELEASE.rpm, machine.root.join("tmp/switchback.rpm"))?;
        // To rpm this machine has no shell.
        machine.run(&["rpm", "--install", "--nodeps", "/tmp/switchback.rpm"])?;
        let installed = machine.changes()?;
        let list = machine.run(&["rpm", "--query", "--list", "switchback"])?;
        let listed: BTreeSet<String> = list.lines().map(str::to_owned).collect();
        // Directories of others do not belong to it.
        let others = |name: &&String| !listed.contains(*name) && !machine.root.join(&name[1..]).is_dir();
        assert_eq!(installed.iter().filter(others).collect::<Vec<_>>(), Vec::<&String>::new());
        it_is_whole(machine, "site-functions")?;
        it_works(machine)?;
        // The administrator's, in a directory of the package.
        fs::write(machine.root.join("etc/switchback/cluster.toml"), "")?;
        machine.run(&["rpm", "--erase", "switchback"])?;
        let left = machine.changes()?;
        let files: Vec<&String> =
            left.iter().filter(|name| !machine.root.join(&name[1..]).is_dir()).collect();
        assert_eq!(files, ["/etc/switchback/cluster.toml"]);
        Ok(())
    })
}

#[test]
fn all_of_a_release_have_the_same_files_and_their_checksums() -> Result {
    let Release { archive, deb, rpm, sums } = &*RELEASE;
    let directory = sums.parent().expect("it is in a directory");
    let checked = said_by(Command::new("sha256sum").args(["--check", text(sums)]).current_dir(directory))?;
    let ok = |file: &PathBuf| format!("{}: OK\n", text(Path::new(file.file_name().expect("a file"))));
    assert_eq!(checked, [archive, deb, rpm].map(ok).concat());

    let files = |list: String, top: &str| -> BTreeSet<String> {
        let names = list.lines().filter(|name| !name.ends_with('/'));
        names.map(|name| name.trim_start_matches(top).to_owned()).collect()
    };
    let top = format!("switchback-{}-{}-linux/", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let in_archive = files(said_by(Command::new("tar").args(["-tzf", text(archive)]))?, &top);
    let in_deb = "dpkg-deb --fsys-tarfile \"$0\" | tar -t";
    let in_deb = files(said_by(Command::new("sh").args(["-c", in_deb, text(deb)]))?, "./");
    let kinds = ["rpm", "-qp", "--queryformat", "[%{FILEMODES:perms} %{FILENAMES}\n]", text(rpm)];
    let listed = said_by(Command::new(kinds[0]).args(&kinds[1..]))?;
    let plain = listed.lines().filter_map(|line| line.strip_prefix('-')?.split_once(" /"));
    let in_rpm: BTreeSet<String> = plain.map(|(_, name)| name.to_owned()).collect();
    assert_eq!(in_archive, in_rpm);
    let different: Vec<&String> = in_archive.symmetric_difference(&in_deb).collect();
    let expected = [
        "usr/share/lintian/overrides/switchback",
        "usr/share/zsh/site-functions/_switchback",
        "usr/share/zsh/vendor-completions/_switchback",
    ];
    assert_eq!(different, expected);
    Ok(())
}

/// The image for containers has all that the program takes.
#[test]
fn an_image_has_what_the_program_needs() -> Result {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("image");
    let place = |name: &str| directory.join(name);
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    let mut script = Command::new(markdown::repository().join("packaging/kubernetes/image"));
    let said = said_by(script.args([PROGRAM, text(&directory)]))?;
    let archive = place(concat!("switchback-", env!("CARGO_PKG_VERSION"), ".oci.tar"));
    assert_eq!(said, format!("{}\n", text(&archive)));
    fs::create_dir(place("layout"))?;
    said_by(Command::new("tar").args(["-xf", text(&archive), "-C", text(&place("layout"))]))?;
    let image = format!("{}:{}", text(&place("layout")), env!("CARGO_PKG_VERSION"));
    said_by(Command::new("umoci").args(["unpack", "--image", &image, text(&place("bundle"))]))?;
    let settings = fs::read_to_string(place("bundle/config.json"))?;
    assert!(settings.contains("\"/usr/bin/switchback\""), "{settings}");
    let root = place("bundle/rootfs");
    assert!(root.join("etc/ssl/certs/ca-certificates.crt").metadata()?.len() > 0);
    let run = |words: &[&str]| {
        said_by(Command::new("chroot").arg(&root).arg("/usr/bin/switchback").args(words).current_dir("/"))
    };
    assert_eq!(run(&["--version"])?, concat!("switchback ", env!("CARGO_PKG_VERSION"), "\n"));
    let example = fs::read_to_string(markdown::repository().join("README.md"))?;
    let example = example.split_once("```toml\n").and_then(|(_, rest)| rest.split_once("```"));
    fs::write(root.join("cluster.toml"), example.ok_or("the README has no example")?.0)?;
    run(&["keygen", "/cluster.key"])?;
    run(&["check", "/cluster.toml"])?;
    Ok(())
}

/// All that is said to be in it is there, belongs to root, and is what it should be.
fn it_is_whole(machine: &Machine, zsh: &str) -> Result {
    let zsh = format!("usr/share/zsh/{zsh}/_switchback");
    for name in [
        &zsh,
        "etc/default/switchback",
        "etc/logrotate.d/switchback",
        "etc/switchback",
        "usr/share/bash-completion/completions/switchback",
        "usr/share/doc/switchback/changelog.gz",
        "usr/share/doc/switchback/copyright",
        "usr/share/doc/switchback/docs/installing.md",
        "usr/share/doc/switchback/packaging/bird/router.conf",
        "usr/share/doc/switchback/packaging/grafana/switchback.json",
        "usr/share/doc/switchback/packaging/keepalived/keepalived.conf",
        "usr/share/fish/vendor_completions.d/switchback.fish",
        "usr/share/man/man1/switchback-switch.1.gz",
        "usr/share/man/man5/cluster.toml.5.gz",
    ] {
        let file = fs::metadata(machine.root.join(name)).map_err(|error| format!("{name}: {error}"))?;
        let mode = if file.is_dir() { 0o755 } else { 0o644 };
        assert_eq!((file.uid(), file.gid(), file.permissions().mode() & 0o777), (0, 0, mode), "{name}");
    }
    let page = machine.run(&["zcat", "/usr/share/man/man1/switchback.1.gz"])?;
    assert!(page.contains(".TH switchback 1"), "{page}");
    // Nothing is said of units that are as they must be.
    for role in ["switch", "node", "run", "client"] {
        let unit = format!("/usr/lib/systemd/system/switchback-{role}.service");
        assert_eq!(machine.run(&["systemd-analyze", "verify", "--man=no", &unit])?, "");
    }
    Ok(())
}

fn it_works(machine: &Machine) -> Result {
    let version = machine.run(&["switchback", "--version"])?;
    assert_eq!(version, concat!("switchback ", env!("CARGO_PKG_VERSION"), "\n"));
    let before = machine.changes()?;
    let shown = machine.run(&["switchback", "lab", "demo", "--load", "1"])?;
    assert!(shown.contains("node2"), "{shown}");
    assert_eq!(machine.changes()?, before);
    Ok(())
}
