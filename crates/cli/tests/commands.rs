//! What a person meets: exit status, output and errors of the commands that need neither root nor a network.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const CLUSTER: &str = r#"
[cluster]
key_file = "cluster.key"

[[node]]
name = "n1"
address = "192.0.2.21"

[[pool]]
name = "web"
nodes = ["n1"]
policy = "round-robin"

[[service]]
name = "shop"
listen = ["192.0.2.100:80"]

[[service.route]]
pool = "web"
"#;

fn switchback(arguments: &[&str]) -> Output {
    let command = Command::new(env!("CARGO_BIN_EXE_switchback")).args(arguments).output();
    command.expect("the binary has been built")
}

/// A new directory of this test's own.
fn directory(test: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("the target directory can be written");
    path
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the target directory has a name in UTF-8")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_new_key_is_readable_by_its_owner_only_and_makes_a_file_valid() {
    let directory = directory("valid");
    let (key, file) = (directory.join("cluster.key"), directory.join("cluster.toml"));
    fs::write(&file, CLUSTER).expect("a new file");
    assert_eq!(switchback(&["keygen", text(&key)]).status.code(), Some(0));
    assert_eq!(fs::metadata(&key).expect("the key").permissions().mode() & 0o777, 0o600);

    let checked = switchback(&["check", text(&file)]);
    assert_eq!((checked.status.code(), stderr(&checked)), (Some(0), String::new()));
    assert_eq!(stdout(&checked), "ok: 1 node, 1 pool, 1 service, 1 route\n");
}

#[test]
fn the_keys_of_a_client_are_made_from_that_of_the_cluster() {
    let directory = directory("client");
    let (key, file) = (directory.join("cluster.key"), directory.join("cluster.toml"));
    let client = directory.join("client.key");
    fs::write(&file, CLUSTER).expect("a new file");
    assert_eq!(switchback(&["keygen", text(&key)]).status.code(), Some(0));
    let made = switchback(&[
        "keygen",
        "--client",
        "198.51.100.1",
        "2001:db8::1",
        "--config",
        text(&file),
        text(&client),
    ]);
    assert_eq!((made.status.code(), stderr(&made)), (Some(0), String::new()));
    assert_eq!(fs::metadata(&client).expect("the keys").permissions().mode() & 0o777, 0o600);
    let written = fs::read_to_string(&client).expect("the keys");
    let of = |address: &str| written.lines().filter(|line| line.starts_with(address)).count();
    assert_eq!((of("198.51.100.1 "), of("2001:db8::1 ")), (1, 1));
    let shown = switchback(&["keygen", "--client", "198.51.100.1", "--config", text(&file)]);
    assert!(written.contains(stdout(&shown).lines().last().expect("a key")), "the same key each time");
    assert_eq!(switchback(&["keygen", "--client", "198.51.100.1"]).status.code(), Some(2), "no cluster key");
    assert_eq!(switchback(&["keygen", "--client", "nobody", "--config", text(&file)]).status.code(), Some(2));
}

#[test]
fn mistakes_in_a_client_toml_are_told_before_anything_is_done() {
    let file = directory("client-mistakes").join("client.toml");
    fs::write(&file, "key_file = \"\"\nservices = []\n").expect("a new file");
    let refused = switchback(&["client", "--config", text(&file), "--interface", "lo"]);
    assert_eq!(refused.status.code(), Some(1));
    let lines = [
        "1:12: empty key_file, allowed is a path such as \"client.key\"",
        "2:12: no service, at least one address with a port is needed",
    ];
    let expected: String = lines.map(|line| format!("{}:{line}\n", file.display())).concat();
    assert_eq!(stderr(&refused), expected);
    let missing = switchback(&["client", "--config", "/nowhere/client.toml", "--interface", "lo"]);
    assert_eq!(missing.status.code(), Some(2), "{}", stderr(&missing));
}

#[test]
fn a_key_is_never_overwritten() {
    let key = directory("overwrite").join("cluster.key");
    fs::write(&key, "precious").expect("a new file");
    let made = switchback(&["keygen", text(&key)]);
    assert_eq!(made.status.code(), Some(2));
    assert!(stderr(&made).starts_with("switchback: cannot write "), "{}", stderr(&made));
    assert_eq!(fs::read_to_string(&key).expect("the old key"), "precious");
}

#[test]
fn without_a_file_the_key_goes_to_the_standard_output() {
    let (one, other) = (switchback(&["keygen"]), switchback(&["keygen"]));
    assert_eq!(one.status.code(), Some(0));
    assert!(stdout(&one).lines().any(|line| line.len() == 64), "{}", stdout(&one));
    assert_ne!(one.stdout, other.stdout);
}

#[test]
fn mistakes_are_shown_with_their_place_and_status_1() {
    let file = directory("invalid").join("cluster.toml");
    let wrong = CLUSTER.replace("round-robin", "roundrobin");
    fs::write(&file, wrong.replace("[\"n1\"]", "[\"n2\"]")).expect("a new file");
    let checked = switchback(&["check", text(&file)]);
    let shown = stderr(&checked);
    assert_eq!((checked.status.code(), checked.stdout.len()), (Some(1), 0));
    assert_eq!(shown.lines().count(), 2, "{shown}");
    let place = format!("{}:", text(&file));
    assert!(shown.lines().all(|line| line.starts_with(&place)), "{shown}");
}

#[test]
fn what_can_hardly_be_meant_is_a_warning_and_status_0() {
    let directory = directory("warnings");
    let (key, file) = (directory.join("cluster.key"), directory.join("cluster.toml"));
    assert_eq!(switchback(&["keygen", text(&key)]).status.code(), Some(0));
    let routes = "[[service.route]]\npath = \"/a/\"\npool = \"web\"\n[[service.route]]\npath = \"/a/b/\"\n";
    let unused = "[[pool]]\nname = \"unused\"\nnodes = [\"n1\"]\npolicy = \"random\"\n";
    let log = "[access_log]\npath = \"/nonexistent/access.log\"\n";
    let cluster = CLUSTER
        .replace("[[service.route]]\n", routes)
        .replace("[[service]]", &format!("{unused}[[service]]"));
    fs::write(&file, cluster + log).expect("a new file");
    let checked = switchback(&["check", text(&file)]);
    let shown = stderr(&checked);
    assert_eq!(checked.status.code(), Some(0), "{shown}");
    assert_eq!(stdout(&checked), "ok: 1 node, 2 pools, 1 service, 2 routes\n");
    let expected = [
        "15:8: warning: pool \"unused\" is in no route",
        "25:1: warning: this route is never reached: the one in line 22 takes all its requests; put this one before it",
        "29:8: warning: the directory /nonexistent is missing on this machine",
    ];
    let expected: String = expected.map(|line| format!("{}:{line}\n", file.display())).concat();
    assert_eq!(shown, expected);
}

#[test]
fn a_client_toml_and_a_scenario_are_checked_too() {
    let directory = directory("kinds");
    let (key, cluster) = (directory.join("cluster.key"), directory.join("cluster.toml"));
    fs::write(&cluster, CLUSTER).expect("a new file");
    assert_eq!(switchback(&["keygen", text(&key)]).status.code(), Some(0));
    let client_key = directory.join("client.key");
    let made =
        switchback(&["keygen", "--client", "198.51.100.1", "--config", text(&cluster), text(&client_key)]);
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    let rows = [
        (
            "key_file = \"client.key\"\nservices = [\"192.0.2.100:80\"]\n",
            "ok: keys of 1 address, 1 service\n",
            "",
        ),
        (
            "key_file = \"client.key\"\nservices = \"192.0.2.100:80\"\nthin_ack = 2\n",
            "",
            "2:12: services is a text, allowed is a list\n3:1: unknown key \"thin_ack\", did you mean \"thin_acks\"?\n",
        ),
        ("seconds = 20\n[[nodes]]\ncount = 3\n", "ok: 3 nodes, 25 s, 5 replications\n", ""),
        (
            "seconds = 0\n[pool]\npolicy = \"best\"\n[[nodes]]\ncores = \"1\"\n",
            "",
            "1:11: seconds is 0, allowed is what is above 0\n3:10: unknown policy \"best\", allowed: round-robin, random, \
             least-connections, two-choices, hash, fill, accept-queue, latency\n5:9: cores is a text, allowed is a whole \
             number without quotes\n",
        ),
    ];
    for (content, line, mistakes) in rows {
        let file = directory.join("file.toml");
        fs::write(&file, content).expect("a new file");
        let checked = switchback(&["check", text(&file)]);
        let mistakes: String =
            mistakes.lines().map(|mistake| format!("{}:{mistake}\n", file.display())).collect();
        assert_eq!((stdout(&checked), stderr(&checked)), (line.to_owned(), mistakes));
        assert_eq!(checked.status.code(), Some(i32::from(line.is_empty())));
    }
}

#[test]
fn a_file_that_is_not_there_is_status_2() {
    let checked = switchback(&["check", "/nonexistent/cluster.toml"]);
    assert_eq!(checked.status.code(), Some(2));
    assert!(stderr(&checked).starts_with("switchback: cannot read /nonexistent/"), "{}", stderr(&checked));
}

#[test]
fn a_missing_default_file_is_told_with_the_option_that_names_another() {
    for (words, default) in [
        (&["check"][..], "cluster.toml"),
        (&["switch", "--interface", "no-such"], "cluster.toml"),
        (&["node", "--name", "n1", "--interface", "no-such"], "cluster.toml"),
        (&["run", "--name", "n1"], "cluster.toml"),
        (&["explain", "/"], "cluster.toml"),
        (&["keygen", "--client", "192.0.2.1"], "cluster.toml"),
        (&["client", "--interface", "no-such"], "client.toml"),
    ] {
        let refused = switchback(words);
        let beginning = format!("switchback: cannot read /etc/switchback/{default}: No such file");
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.starts_with(&beginning) && said.contains("--config FILE"), "{words:?}: {said}");
        assert!(!said.contains("  ") && said.lines().count() == 1, "{words:?}: {said}");
    }
}

#[test]
fn a_machine_without_its_role_does_not_start() {
    let directory = directory("role");
    let (key, file) = (directory.join("cluster.key"), directory.join("cluster.toml"));
    assert_eq!(switchback(&["keygen", text(&key)]).status.code(), Some(0));
    for (lines, name, role, lacks) in [
        ("", "n1", "switch", "[[switch]]"),
        ("[[switch]]\nname = \"s1\"\n", "s1", "node", "[[node]]"),
        ("", "n2", "node", "[[switch]] and no [[node]]"),
    ] {
        fs::write(&file, format!("{CLUSTER}{lines}")).expect("a new file");
        let refused = switchback(&["run", "--name", name, "--role", role, "--config", text(&file)]);
        let expected = format!("{} has no {lacks} with the name {name}\n", file.display());
        assert_eq!((stderr(&refused), refused.status.code()), (expected, Some(1)));
    }
}

#[test]
fn a_wrong_command_line_is_status_2() {
    for arguments in [&["frobnicate"][..], &["switch"], &["node", "--name", "n1"], &[]] {
        assert_eq!(switchback(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_process_that_is_not_there_cannot_be_asked() {
    for command in ["status", "reload"] {
        let asked = switchback(&[command, "--socket", "/nonexistent/socket"]);
        assert_eq!(asked.status.code(), Some(2));
        assert!(stderr(&asked).starts_with("switchback: "), "{}", stderr(&asked));
    }
}

#[test]
fn every_command_explains_itself() {
    for command in ["switch", "node", "check", "keygen", "doctor", "status", "ready", "reload", "lab"] {
        let help = switchback(&[command, "--help"]);
        assert_eq!(help.status.code(), Some(0), "{command}");
        assert!(stdout(&help).contains("Usage: switchback"), "{command}");
    }
}
