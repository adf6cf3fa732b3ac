//! Headers of the BPF programs include what they use: each compiles by itself, and in any order with the others.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Folders of the headers that programs share.
const SHARED: [&str; 2] = ["http", "wire"];

/// Those, and folders of programs.
const FOLDERS: [&str; 5] = [SHARED[0], SHARED[1], "switch", "node", "client"];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name).join("bpf")
}

fn headers_of(name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder(name)).expect("the folder is there");
    let mut headers: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    headers.retain(|path| path.extension().is_some_and(|extension| extension == "h"));
    headers.sort();
    headers
}

/// The headers of libbpf, where clang finds them.
fn libbpf() -> PathBuf {
    let include = Path::new(env!("CARGO_TARGET_TMPDIR")).join("headers");
    fs::create_dir_all(include.join("bpf")).expect("cargo's folder can be written");
    for (name, contents) in libbpf_sys::API_HEADERS {
        fs::write(include.join("bpf").join(name), contents).expect("cargo's folder can be written");
    }
    include
}

/// What clang says of a source that includes these headers; empty if it is content.
fn errors_of(headers: &[&Path], libbpf: &Path) -> String {
    let mut clang = Command::new("clang")
        .args(["-fsyntax-only", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror", "-Wno-unused-function"])
        .args(["-D__TARGET_ARCH_x86", "-fno-strict-aliasing", "-I/usr/include/x86_64-linux-gnu"])
        .arg("-I")
        .arg(libbpf)
        .args(SHARED.iter().flat_map(|name| [Path::new("-I").into(), folder(name)]))
        .args(["-x", "c", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("clang is installed (Debian package clang)");
    let mut source = clang.stdin.take().expect("it is a pipe");
    for header in headers {
        writeln!(source, "#include \"{}\"", header.display()).expect("clang reads its input");
    }
    drop(source);
    let output = clang.wait_with_output().expect("clang ends");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.success(), errors.is_empty(), "{errors}");
    errors
}

#[test]
fn each_header_compiles_by_itself() {
    let libbpf = libbpf();
    let failed: Vec<String> = FOLDERS
        .iter()
        .flat_map(|name| headers_of(name))
        .map(|header| errors_of(&[&header, &header], &libbpf))
        .filter(|errors| !errors.is_empty())
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn headers_compile_in_reverse_order() {
    let libbpf = libbpf();
    for name in FOLDERS {
        let headers = headers_of(name);
        let reverse: Vec<&Path> = headers.iter().rev().map(PathBuf::as_path).collect();
        assert_eq!(errors_of(&reverse, &libbpf), "", "{name}");
    }
}
