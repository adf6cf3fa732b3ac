//! Key files on a disk.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use switchback_config::{Error, generate_key, key_file_text, load, write_key};

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

/// A new directory with a `cluster.toml` in it.
fn directory(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("cluster.toml"), CLUSTER).unwrap();
    directory
}

fn write_private(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn a_written_key_is_read_again_and_never_overwritten() {
    let directory = directory("written");
    let file = directory.join("cluster.key");
    let key = generate_key().unwrap();
    assert_ne!(key, generate_key().unwrap());
    write_key(&file, &key).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(load(&directory.join("cluster.toml")).unwrap().keys, std::slice::from_ref(&key));

    let error = write_key(&file, &generate_key().unwrap()).unwrap_err();
    assert_eq!(error.exit_status(), 2);
    let message = error.to_string();
    assert!(message.starts_with(&format!("cannot write {}: File exists", file.display())), "{message}");
    assert!(message.ends_with("; a key is never overwritten, move the old file away first"), "{message}");
    assert_eq!(fs::read_to_string(&file).unwrap(), key_file_text(&key));
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn two_keys_while_one_replaces_the_other() {
    let directory = directory("two");
    let (new, old) = ("0f".repeat(32), "A0".repeat(32));
    write_private(&directory.join("cluster.key"), &format!("# new\r\n{new} # signs\r\n\n  {old}"));
    let keys = load(&directory.join("cluster.toml")).unwrap().keys;
    assert_eq!(keys.iter().map(|key| key.as_bytes()).collect::<Vec<_>>(), [&[0x0f; 32], &[0xa0; 32]]);
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn files_that_cannot_be_read() {
    let directory = directory("unreadable");
    let file = directory.join("cluster.key");
    let message = |path: &Path| {
        let error = load(path).unwrap_err();
        assert_eq!(error.exit_status(), 2, "{error}");
        error.to_string()
    };
    let cluster = directory.join("cluster.toml");
    assert_eq!(
        message(&cluster),
        format!(
            "cannot read {0}: No such file or directory (os error 2); copy it from another machine of the \
             cluster, or make it: switchback keygen {0}",
            file.display()
        )
    );
    write_private(&file, &"0f".repeat(32));
    for mode in [0o640, 0o604, 0o620] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        assert_eq!(
            message(&cluster),
            format!(
                "cannot read {0}: mode {mode:04o} lets others than its owner at the key; chmod 600 {0}",
                file.display()
            )
        );
    }
    let missing = directory.join("absent.toml");
    assert_eq!(
        message(&missing),
        format!("cannot read {}: No such file or directory (os error 2)", missing.display())
    );
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn bad_key_files() {
    let directory = directory("bad");
    let file = directory.join("cluster.key");
    let [a, b, c] = ["0a", "0b", "0c"].map(|pair| pair.repeat(32));
    let rows = [
        ("# nothing\n".to_owned(), &["1:1: no key, one line of 64 hexadecimal digits is needed"][..]),
        (
            format!("\n {}\n{}g\n", &a[1..], &b[1..]),
            &[
                "2:2: not a key, a key is 64 hexadecimal digits",
                "3:1: not a key, a key is 64 hexadecimal digits",
            ],
        ),
        (
            format!("{a}\n{a}\n{b}\n{c}\n"),
            &[
                "2:1: the same key again, two keys must differ",
                "4:1: one key too many, allowed are one key, or two while it is replaced",
            ],
        ),
    ];
    for (text, expected) in rows {
        write_private(&file, &text);
        let error = load(&directory.join("cluster.toml")).unwrap_err();
        let expected: Vec<_> = expected.iter().map(|line| format!("{}:{line}", file.display())).collect();
        assert_eq!(error.to_string(), expected.join("\n"));
        assert_eq!(error.exit_status(), 1);
    }
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_file_that_is_no_text() {
    let directory = directory("binary");
    let cluster = directory.join("cluster.toml");
    fs::write(&cluster, b"# \xc3\xa9\n#\xff").unwrap();
    let error = load(&cluster).unwrap_err();
    assert!(matches!(error, Error::Invalid(_)));
    assert_eq!(
        error.to_string(),
        format!("{}:2:2: not UTF-8, only UTF-8 text is allowed", cluster.display())
    );
    fs::remove_dir_all(directory).unwrap();
}
