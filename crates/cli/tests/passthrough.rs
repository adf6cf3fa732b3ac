//! TLS that passes through to the servers: nginx, Caddy and one in Go, each with certificates of its own.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use common::http::add_long_document;
use common::log_file::LogFile;
use common::{Cluster, PATIENCE, Plan, Result, build_go, text, wait_until};
use serde_json::{Value, json};
use switchback_lab::{Output, ServerKind, Signal};

const TIMEOUT: Duration = Duration::from_secs(120);
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");

/// A host of each server, by its node.
const HOSTS: [&str; 3] = ["nginx.example.com", "caddy.example.com", "go.example.com"];
/// Another host of nginx, which demands a certificate of clients.
const MUTUAL: &str = "mutual.example.com";
/// The name in that certificate.
const CLIENT: &str = "client.example.com";
/// A host of nginx and of the server in Go.
const BOTH: &str = "both.example.com";
/// A host of both, of which the server in Go has what offers HTTP/2.
const BY_PROTOCOL: &str = "alpn.example.com";

const ROUTES: &str = "
[[service.route]]
host = \"caddy.example.com\"
pool = \"caddy\"

[[service.route]]
host = \"alpn.example.com\"
alpn = \"h2\"
pool = \"go\"

[[service.route]]
host = \"go.example.com\"
pool = \"go\"

[[service.route]]
host = \"both.example.com\"
pool = \"both\"

[[service.route]]
host = \"*.example.com\"
pool = \"nginx\"
";

/// Where the server in Go listens.
const GO: [&str; 2] = ["127.0.0.1:8443", "[::1]:8443"];

/// The servers of the nodes get their connections in this way.
fn plan(adoption: &str) -> Plan {
    let mut lines: Vec<_> = (0..3).map(|node| (node, format!("adoption = \"{adoption}\""))).collect();
    lines.push((2, format!("server = {GO:?}")));
    Plan {
        servers: vec![ServerKind::Nginx; 3],
        pools: vec![("nginx", vec![0]), ("caddy", vec![1]), ("go", vec![2]), ("both", vec![0, 2])],
        node_lines: lines,
        ..Plan::default()
    }
}

fn start(adoption: &str) -> Result<Cluster> {
    start_with(plan(adoption), adoption)
}

fn start_with(plan: Plan, adoption: &str) -> Result<Cluster> {
    let mut cluster = Cluster::prepare(plan)?;
    for name in HOSTS.into_iter().chain([MUTUAL, CLIENT]) {
        let mut certificate = rcgen::CertificateParams::new([name.to_owned()])?;
        certificate.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = rcgen::KeyPair::generate()?;
        fs::write(file(&cluster, &format!("{name}.pem")), certificate.self_signed(&key)?.pem())?;
        fs::write(file(&cluster, &format!("{name}.key")), key.serialize_pem())?;
    }
    let certificates = HOSTS.into_iter().chain([MUTUAL]);
    let certificates = certificates.map(|name| fs::read_to_string(file(&cluster, &format!("{name}.pem"))));
    fs::write(file(&cluster, "all.pem"), certificates.collect::<std::io::Result<String>>()?)?;
    start_nginx(&cluster)?;
    start_caddy(&cluster)?;
    start_go(&cluster, adoption)?;
    let vips = [SocketAddr::new(cluster.lab.vip4().into(), 443), (cluster.lab.vip6(), 443).into()];
    let vips = vips.map(|vip| vip.to_string());
    let service = format!(
        "\n[[service]]\nname = \"passed\"\nlisten = {vips:?}\n\n[service.tls]\npassthrough = true\n{ROUTES}"
    );
    let before = fs::read_to_string(&cluster.config)?;
    fs::write(&cluster.config, before + &service)?;
    cluster.start_daemons()?;
    for node in 0..3 {
        let states = || Ok(cluster.node_status(node)?["listeners"].to_string());
        wait_until("listeners", PATIENCE, states, |states| !states.contains("nobody listens"))?;
    }
    Ok(cluster)
}

/// A file in the lab's directory.
fn file(cluster: &Cluster, name: &str) -> PathBuf {
    cluster.lab.directory().join(name)
}

fn root(cluster: &Cluster, node: usize) -> PathBuf {
    file(cluster, &format!("roots/node{node}"))
}

fn start_nginx(cluster: &Cluster) -> Result {
    let directory = file(cluster, "nginx-tls");
    fs::create_dir_all(&directory)?;
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("{what}_temp_path {}/{what};\n", directory.display()));
    let server = |name: &str, more: &str| {
        let certificate = file(cluster, name);
        let certificate = text(&certificate);
        format!(
            "server {{\nlisten 443 ssl http2;\nlisten [::]:443 ssl http2;\nserver_name {name};\n\
             ssl_certificate {certificate}.pem;\nssl_certificate_key {certificate}.key;\n{more}}}\n"
        )
    };
    let client = file(cluster, &format!("{CLIENT}.pem"));
    let mutual = format!("ssl_client_certificate {};\nssl_verify_client on;\n", client.display());
    let configuration = format!(
        "daemon off;\nuser root;\npid {pid};\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n\
         default_type application/octet-stream;\n{temporary}root {root};\nclient_max_body_size 0;\ndav_methods PUT;\n\
         add_header X-Node node0 always;\nadd_header X-Client $ssl_client_s_dn always;\n\
         add_header X-Address $remote_addr always;\n{servers}}}\n",
        pid = directory.join("pid").display(),
        temporary = temporary.concat(),
        root = root(cluster, 0).display(),
        servers = server(HOSTS[0], "") + &server(MUTUAL, &mutual),
    );
    let path = directory.join("nginx.conf");
    fs::write(&path, configuration)?;
    let mut command = Command::new("nginx");
    command.args(["-p", text(&directory), "-e", "stderr", "-c", text(&path)]);
    start_server(cluster, 0, command, &["0.0.0.0:443", "[::]:443"])
}

fn start_caddy(cluster: &Cluster) -> Result {
    let directory = file(cluster, "caddy-tls");
    fs::create_dir_all(&directory)?;
    let (name, root) = (HOSTS[1], root(cluster, 1));
    let certificate = file(cluster, name);
    let configuration = format!(
        "{{\nadmin off\nauto_https off\nservers {{\nprotocols h1 h2\n}}\n}}\nhttps://{name}:443 {{\n\
         tls {certificate}.pem {certificate}.key\nroot * {root}\nheader X-Node node1\nfile_server\n}}\n",
        certificate = certificate.display(),
        root = root.display(),
    );
    let path = directory.join("Caddyfile");
    fs::write(&path, configuration)?;
    let mut command = Command::new("caddy");
    command.args(["run", "--adapter", "caddyfile", "--config", text(&path)]);
    command.env("HOME", &directory).env("XDG_DATA_HOME", &directory).env("XDG_CONFIG_HOME", &directory);
    start_server(cluster, 1, command, &["[::]:443"])
}

fn start_go(cluster: &Cluster, adoption: &str) -> Result {
    let binary = build_go("go-tls-server", &format!("{SOURCES}/passthrough/server.go"))?;
    let mut command = Command::new(binary);
    command.arg(file(cluster, HOSTS[2])).arg(root(cluster, 2)).arg("node2").args(GO);
    if adoption == "kernel" {
        // The kernel adopts nothing for MPTCP, which is Go's default.
        command.env("GODEBUG", "multipathtcp=0");
    }
    start_server(cluster, 2, command, &GO)
}

fn start_server(cluster: &Cluster, node: usize, command: Command, listen: &[&str]) -> Result {
    let host = cluster.lab.node(node);
    let server = host.spawn("tls-server", command)?;
    let listen = listen.iter().map(|address| address.parse()).collect::<std::result::Result<Vec<_>, _>>()?;
    Ok(host.wait_for_listeners(&server, &listen, PATIENCE)?)
}

fn vips(cluster: &Cluster) -> [IpAddr; 2] {
    [cluster.lab.vip4().into(), cluster.lab.vip6().into()]
}

/// Options for curl: the authorities of all certificates, and each host is at this VIP.
fn to_service(cluster: &Cluster, vip: IpAddr) -> [String; 6] {
    let vip = if vip.is_ipv6() { format!("[{vip}]") } else { vip.to_string() };
    let resolve = format!("*:443:{vip}");
    let all = text(&file(cluster, "all.pem")).to_owned();
    ["-sS".to_owned(), "--fail-early".to_owned(), "--cacert".to_owned(), all, "--resolve".to_owned(), resolve]
}

/// curl, whatever comes of it.
fn curl(cluster: &Cluster, vip: IpAddr, options: &[&str]) -> Result<Output> {
    let to_service = to_service(cluster, vip);
    let to_service = to_service.iter().map(String::as_str);
    let words = std::iter::once("curl").chain(to_service).chain(options.iter().copied());
    Ok(cluster.client().run_within(TIMEOUT, words)?)
}

/// Likewise, to be started.
fn curl_command(cluster: &Cluster, options: &[&str]) -> Command {
    let mut command = cluster.client().command("curl");
    command.args(to_service(cluster, vips(cluster)[0])).args(["--fail", "--max-time", "100"]).args(options);
    command
}

/// The node that answers.
fn node_of(cluster: &Cluster, options: &[&str]) -> Result<String> {
    let written = ["-o", "/dev/null", "-w", "%header{x-node}"];
    Ok(curl(cluster, vips(cluster)[0], &[&written, options].concat())?.success()?)
}

/// What `openssl s_client` says to the end of its input, whatever comes of it.
fn openssl(cluster: &Cluster, vip: IpAddr, options: &[&str]) -> Result<String> {
    let (vip, all) = (SocketAddr::new(vip, 443).to_string(), file(cluster, "all.pem"));
    let words = ["openssl", "s_client", "-connect", &vip, "-CAfile", text(&all)];
    let output = cluster.client().run_within(TIMEOUT, [&words, options].concat())?;
    Ok(output.stdout + &output.stderr)
}

/// The first certificate in a text.
fn certificate(text: &str) -> Result<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let start =
        text.find("-----BEGIN CERTIFICATE-----").ok_or_else(|| format!("no certificate in {text}"))?;
    let (certificate, _) = text[start..].split_once(END).ok_or("half a certificate")?;
    Ok(certificate.split_whitespace().collect())
}

#[test]
fn clients_get_the_certificates_and_documents_of_the_servers() -> Result {
    let client = build_go("go-tls-client", &format!("{SOURCES}/tls/go/main.go"))?;
    for adoption in ["kernel", "replay"] {
        let cluster = start(adoption)?;
        let document = file(&cluster, "documents/1m");
        let got = file(&cluster, "got");
        for vip in vips(&cluster) {
            for (node, name) in HOSTS.into_iter().enumerate() {
                let said = openssl(&cluster, vip, &["-servername", name, "-verify_return_error"])?;
                let own = fs::read_to_string(file(&cluster, &format!("{name}.pem")))?;
                assert_eq!(certificate(&said)?, certificate(&own)?, "{adoption} {name}");
                assert!(said.contains("Verify return code: 0 (ok)"), "{said}");
                let url = format!("https://{name}/1m");
                for (options, version) in [(&[][..], "2"), (&["--http1.1"], "1.1")] {
                    let written = "%{http_version} %{response_code} %header{x-node}";
                    let all = [options, &["-o", text(&got), "-w", written, &url]].concat();
                    let said = curl(&cluster, vip, &all)?.success()?;
                    assert_eq!(said, format!("{version} 200 node{node}"), "{adoption} {name}");
                    assert!(fs::read(&got)? == fs::read(&document)?, "{adoption} {name} {version}");
                }
            }
            // Over connections that it keeps, one for each host.
            let lines = (0..30).map(|n| format!("GET https://{}/1m {}\n", HOSTS[n % 3], document.display()));
            let list = file(&cluster, "gets");
            fs::write(&list, lines.collect::<String>())?;
            let all = file(&cluster, "all.pem");
            for version in ["HTTP/2.0", "HTTP/1.1"] {
                let words = [text(&client), version, &vip.to_string(), text(&all), text(&list)];
                let said = cluster.client().run_within(TIMEOUT, words)?.success()?;
                assert_eq!(said.trim(), "30", "{adoption} {version}");
            }
        }
        for node in 0..3 {
            let (adopted, replayed) =
                (cluster.node_counter(node, "adopted")?, cluster.node_counter(node, "replayed")?);
            assert!(adopted >= 10, "{adoption} node{node}: {adopted}");
            assert_eq!(replayed, if adoption == "kernel" { 0 } else { adopted }, "{adoption} node{node}");
        }
        // The server sees its client.
        let address = ["-o", "/dev/null", "-w", "%header{x-address}", "https://nginx.example.com/small"];
        let said = curl(&cluster, vips(&cluster)[0], &address)?.success()?;
        assert_eq!(said, cluster.client().ipv4().to_string());
        cluster.down()?;
    }
    Ok(())
}

/// As servers in Go are without a setting, for MPTCP.
#[test]
fn a_hundred_megabytes_each_way() -> Result {
    for adoption in ["auto", "replay"] {
        let cluster = start(adoption)?;
        let document = add_long_document(&cluster.lab, "/long", 100)?;
        let got = file(&cluster, "got");
        let sent = file(&cluster, "documents/long");
        for (node, name) in HOSTS.into_iter().enumerate() {
            for (options, vip) in [(&[][..], 0), (&["--http1.1"], 1)] {
                let vip = vips(&cluster)[vip];
                let url = format!("https://{name}/long");
                curl(&cluster, vip, &[options, &["--fail", "-o", text(&got), &url]].concat())?.success()?;
                assert!(fs::read(&got)? == **document.body, "{adoption} {name} {options:?}");
                if node == 1 {
                    // Caddy takes no files.
                    continue;
                }
                let url = format!("https://{name}/upload");
                let put = ["--fail", "-o", "/dev/null", "-T", text(&sent), &url];
                curl(&cluster, vip, &[options, &put].concat())?.success()?;
                let arrived = root(&cluster, node).join("upload");
                assert!(fs::read(&arrived)? == **document.body, "{adoption} {name} {options:?}");
                fs::remove_file(arrived)?;
            }
        }
        cluster.down()?;
    }
    Ok(())
}

/// Every connection begins with a ClientHello of its own, of which packets are lost.
#[test]
fn over_a_path_with_loss() -> Result {
    let cluster = start("auto")?;
    cluster.client().set_loss(30, 30)?;
    let document = fs::read(file(&cluster, "documents/1m"))?;
    let got = file(&cluster, "got");
    for (number, vip) in (0..30).zip(vips(&cluster).into_iter().cycle()) {
        let url = format!("https://{}/1m", HOSTS[number % 3]);
        curl(&cluster, vip, &["--fail", "-o", text(&got), &url])?.success()?;
        assert!(fs::read(&got)? == document, "{url}");
    }
    cluster.client().set_loss(0, 0)?;
    cluster.down()
}

#[test]
fn a_server_may_demand_a_certificate() -> Result {
    let cluster = start("auto")?;
    let url = format!("https://{MUTUAL}/small");
    let [own, key] = ["pem", "key"].map(|end| file(&cluster, &format!("{CLIENT}.{end}")));
    let written = ["-o", "/dev/null", "-w", "%{response_code} %header{x-client}", &url];
    for options in [&[][..], &["--http1.1"]] {
        let with = [options, &["--cert", text(&own), "--key", text(&key)], &written].concat();
        let said = curl(&cluster, vips(&cluster)[0], &with)?.success()?;
        assert_eq!(said, format!("200 CN={CLIENT}"));
        let without = curl(&cluster, vips(&cluster)[0], &[options, &written].concat())?.success()?;
        assert_eq!(without, "400 ");
    }
    cluster.down()
}

#[test]
fn routes_go_by_name_and_protocol() -> Result {
    let cluster = start("auto")?;
    for (name, options, node) in [
        (HOSTS[1], &[][..], "node1"),
        ("anything.example.com", &[], "node0"),
        ("a.b.example.com", &[], "node0"),
        (BY_PROTOCOL, &[], "node2"),
        (BY_PROTOCOL, &["--http1.1"], "node0"),
        (BY_PROTOCOL, &["--no-alpn"], "node0"),
    ] {
        // Their servers have no certificates for all these names.
        let url = format!("https://{name}/small");
        assert_eq!(node_of(&cluster, &[&["-k"], options, &[&url]].concat())?, node, "{name} {options:?}");
    }
    // In turn.
    let url = format!("https://{BOTH}/small");
    let mut nodes = [node_of(&cluster, &["-k", &url])?, node_of(&cluster, &["-k", &url])?];
    nodes.sort();
    assert_eq!(nodes, ["node0", "node2"]);
    cluster.down()
}

#[test]
fn what_no_route_takes_is_refused() -> Result {
    let cluster = start("auto")?;
    let vip = vips(&cluster)[0];
    for version in ["-tls1_2", "-tls1_3"] {
        for name in [&["-servername", "unknown.example.org"][..], &["-noservername"]] {
            let refused = openssl(&cluster, vip, &[name, &[version]].concat())?;
            assert!(refused.contains("SSL alert number 112"), "{refused}");
        }
    }
    // A ClientHello without a name goes to a route without a host.
    let text = fs::read_to_string(&cluster.config)?;
    fs::write(&cluster.config, text + "\n[[service.route]]\npool = \"caddy\"\n")?;
    cluster.switch().signal(Signal::SIGHUP)?;
    let other = fs::read_to_string(file(&cluster, &format!("{}.pem", HOSTS[1])))?;
    let said = || openssl(&cluster, vip, &["-servername", "unknown.example.org"]);
    // Caddy has no certificate for it, and says so itself.
    let caddy = |said: &String| said.contains("SSL alert number 80") && !said.contains("number 112");
    wait_until("another configuration", PATIENCE, said, caddy)?;
    let named = openssl(&cluster, vip, &["-servername", HOSTS[1]])?;
    assert_eq!(certificate(&named)?, certificate(&other)?);

    // No TLS at all.
    let said = curl(&cluster, vip, &["-i", "http://nginx.example.com:443/small"])?.success()?;
    assert!(said.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{said}");
    let mut stream = cluster.client().tcp_connect(SocketAddr::new(vip, 443), PATIENCE)?;
    stream.write_all(b"\x80\x2e\x01 no TLS that anybody speaks")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    // A fatal alert, decode_error.
    assert_eq!(answer, [21, 3, 3, 0, 2, 2, 50]);
    cluster.down()
}

/// A kept connection of `openssl s_client`, over HTTP/1.1.
struct Kept {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Kept {
    fn open(cluster: &Cluster, name: &str) -> Result<Kept> {
        let mut command = cluster.client().command("openssl");
        let vip = format!("{}:443", cluster.lab.vip4());
        command.args(["s_client", "-quiet", "-no_ign_eof", "-connect", &vip, "-servername", name]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Ok(Kept { child, to, from: BufReader::new(from) })
    }

    /// The node that answers a request.
    fn ask(&mut self) -> Result<String> {
        self.to.write_all(b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n")?;
        let (mut node, mut line) = (String::new(), String::new());
        while self.from.read_line(&mut line)? > 0 && line != "\r\n" {
            let value = line.to_lowercase();
            let value = value.strip_prefix("x-node: ").map(str::trim);
            value.into_iter().for_each(|value| value.clone_into(&mut node));
            line.clear();
        }
        self.from.read_exact(&mut [0; switchback_lab::SMALL])?;
        Ok(node)
    }

    fn close(mut self) -> Result {
        drop(self.to);
        self.child.wait()?;
        Ok(())
    }
}

/// Connections of nginx and of the server in Go, whatever their nodes adopt them by.
#[test]
fn connections_outlive_switch_and_agents() -> Result {
    for adoption in ["kernel", "replay"] {
        let mut cluster = start(adoption)?;
        let document = add_long_document(&cluster.lab, "/long", 60)?;
        let mut kept = [Kept::open(&cluster, HOSTS[0])?, Kept::open(&cluster, HOSTS[2])?];
        let mut ask = || -> Result {
            let [nginx, go] = &mut kept;
            assert_eq!([nginx.ask()?, go.ask()?], ["node0", "node2"], "{adoption}");
            Ok(())
        };
        ask()?;
        cluster.client().set_rate(Some(20_000_000))?;
        let (got, uploaded) = (file(&cluster, "got"), root(&cluster, 2).join("upload"));
        let sent = file(&cluster, "documents/long");
        let transfers = [
            curl_command(&cluster, &["-o", text(&got), "https://nginx.example.com/long"]).spawn()?,
            curl_command(&cluster, &["-T", text(&sent), "https://go.example.com/upload"]).spawn()?,
        ];
        let some = |path: &PathBuf| {
            let len = || Ok(fs::metadata(path).map_or(0, |file| file.len()));
            wait_until("a transfer", PATIENCE, len, |len| *len > 1 << 20)
        };
        assert!(some(&got)? < 60 << 20 && some(&uploaded)? < 60 << 20);
        cluster.kill_switch()?;
        ask()?;
        cluster.start_switch()?;
        ask()?;
        for node in [0, 2] {
            cluster.kill_node(node)?;
        }
        ask()?;
        for node in [0, 2] {
            cluster.start_node(node)?;
        }
        ask()?;
        assert!(fs::metadata(&got)?.len() < 60 << 20, "the download was over before");
        cluster.client().set_rate(None)?;
        for mut transfer in transfers {
            assert!(transfer.wait()?.success(), "{adoption}");
        }
        assert!(fs::read(&got)? == **document.body && fs::read(&uploaded)? == **document.body, "{adoption}");

        // A switch that knows no flows asks the nodes for them.
        cluster.kill_switch()?;
        let namespace = format!("/run/netns/{}", cluster.lab.switch(0).namespace_name());
        let inode = fs::metadata(namespace)?.ino();
        fs::remove_dir_all(format!("/sys/fs/bpf/switchback/switch-eth0-{inode}"))?;
        cluster.start_switch()?;
        ask()?;
        kept.into_iter().try_for_each(Kept::close)?;
        cluster.down()?;
    }
    Ok(())
}

/// An agent that is stopped leaves the connection to its programs, and a switch to the nodes.
#[test]
fn connections_outlive_stops_in_order() -> Result {
    let mut cluster = start("auto")?;
    let mut kept = Kept::open(&cluster, HOSTS[0])?;
    assert_eq!(kept.ask()?, "node0");
    cluster.agent(0).signal(Signal::SIGTERM)?;
    let status = cluster.agent(0).wait_timeout(PATIENCE)?.ok_or("the agent goes on")?;
    assert!(status.success(), "{status}");
    assert_eq!(kept.ask()?, "node0");
    cluster.start_node(0)?;
    cluster.stop_switch()?;
    cluster.start_switch()?;
    assert_eq!(kept.ask()?, "node0");
    kept.close()?;
    cluster.down()
}

/// A connection stays where it is, and others go elsewhere.
#[test]
fn a_node_is_drained() -> Result {
    let cluster = start("auto")?;
    let mut kept = Kept::open(&cluster, BOTH)?;
    let node = kept.ask()?;
    cluster.run(cluster.lab.switch(0), &["drain", "--no-wait", &node])?.success()?;
    let url = format!("https://{BOTH}/small");
    let other = if node == "node0" { "node2" } else { "node0" };
    for _ in 0..4 {
        assert_eq!(node_of(&cluster, &["-k", &url])?, other);
    }
    assert_eq!(kept.ask()?, node);
    kept.close()?;
    let said = cluster.run(cluster.lab.switch(0), &["drain", &node])?.success()?;
    assert!(said.contains("free after"), "{said}");
    cluster.run(cluster.lab.switch(0), &["undrain", &node])?.success()?;
    cluster.down()
}

/// A name with no node but one whose server does not listen.
#[test]
fn without_a_server_a_client_gets_an_alert() -> Result {
    let cluster = start("auto")?;
    let server = cluster.lab.node(1).process("tls-server").ok_or("no server")?;
    server.kill()?;
    let vip = vips(&cluster)[0];
    // Once the node has told that.
    let said = || openssl(&cluster, vip, &["-servername", HOSTS[1]]);
    wait_until("an alert", PATIENCE, said, |said| said.contains("SSL alert number 80"))?;
    assert_eq!(node_of(&cluster, &["-k", "https://nginx.example.com/small"])?, "node0");
    start_caddy(&cluster)?;
    let url = format!("https://{}/small", HOSTS[1]);
    let node = || Ok(node_of(&cluster, &[&url]).unwrap_or_default());
    wait_until("the server", PATIENCE, node, |node| node == "node1")?;
    cluster.down()
}

/// Nodes log nothing that they do not read.
#[test]
fn a_connection_has_a_line_of_the_switch() -> Result {
    let log = LogFile::new("passthrough");
    let access_log = Some(format!("path = \"{}\"", log.text()));
    let mut cluster = start_with(Plan { access_log, ..plan("auto") }, "auto")?;
    let url = format!("https://{}/1m", HOSTS[1]);
    // One connection.
    let twice = ["-o", "/dev/null", &url, "-o", "/dev/null", &url];
    curl(&cluster, vips(&cluster)[0], &twice)?.success()?;
    let lines = wait_until("a line", PATIENCE, || log.lines(), |lines| !lines.is_empty())?;
    let expected = json!({
        "service": "passed", "route": 1, "pool": "caddy", "node": "node1", "policy": "round-robin",
        "chosen_by": "policy", "tries": 0, "host": HOSTS[1], "server_name": HOSTS[1], "tls_version": null,
        "method": null, "target": null, "request": null, "status": null, "end": "unknown",
    });
    let check = |line: &Value, expected: Value| {
        for (key, value) in expected.as_object().expect("it is written as one") {
            assert_eq!(&line[key], value, "{key} of {line}");
        }
    };
    check(&lines[0], expected);
    let bytes = lines[0]["bytes"].as_u64().ok_or("no bytes")?;
    assert!((2 << 20..3 << 20).contains(&bytes), "{}", lines[0]);
    assert!(lines[0]["first_byte_us"].as_u64() <= lines[0]["duration_us"].as_u64(), "{}", lines[0]);

    openssl(&cluster, vips(&cluster)[0], &["-servername", "unknown.example.org"])?;
    let lines = wait_until("another", PATIENCE, || log.lines(), |lines| lines.len() > 1)?;
    let refused =
        json!({ "service": "passed", "server_name": "unknown.example.org", "route": null, "node": null });
    check(&lines[1], refused);
    cluster.stop_all()?;
    assert_eq!(log.lines()?.len(), 2);
    cluster.down()
}
