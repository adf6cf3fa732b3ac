//! A source with names, a name server, and what a daemon gets of both.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fs, thread};

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, CNAME};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use switchback_config::{Document, Error, FileSource, Source};
use switchback_dns::{Resolved, resolve};

/// A question may be under way for so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a name server answers to a question.
#[derive(Clone, Debug)]
enum Reply {
    Addresses(Vec<IpAddr>),
    Alias(&'static str),
    Code(ResponseCode),
    Silence,
}

/// A name server that answers as it is told.
#[derive(Clone)]
struct NameServer {
    address: SocketAddr,
    replies: Arc<Mutex<HashMap<(String, RecordType), Reply>>>,
}

impl NameServer {
    fn start() -> NameServer {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let server =
            NameServer { address: socket.local_addr().unwrap(), replies: Arc::new(Mutex::default()) };
        let replies = Arc::clone(&server.replies);
        thread::spawn(move || {
            let mut buffer = [0; 1500];
            while let Ok((len, client)) = socket.recv_from(&mut buffer) {
                let question = Message::from_vec(&buffer[..len]).unwrap();
                if let Some(answer) = answer(&question, &replies.lock().unwrap()) {
                    socket.send_to(&answer.to_vec().unwrap(), client).unwrap();
                }
            }
        });
        server
    }

    fn set(&self, name: &str, kind: RecordType, reply: Reply) {
        self.replies.lock().unwrap().insert((format!("{name}."), kind), reply);
    }

    /// Answers questions for IPv4 addresses with these.
    fn set_addresses(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.set(name, RecordType::A, Reply::Addresses(addresses));
    }
}

/// Records live for a second.
fn answer(question: &Message, replies: &HashMap<(String, RecordType), Reply>) -> Option<Message> {
    let query = question.queries.first()?.clone();
    let none = Reply::Code(ResponseCode::NXDomain);
    let of = |name: &Name| replies.get(&(name.to_string(), query.query_type())).unwrap_or(&none).clone();
    let mut message = Message::response(question.metadata.id, question.metadata.op_code);
    let mut add = |name: &Name, data| {
        message.add_answer(Record::from_rdata(name.clone(), 1, data));
    };
    let mut name = query.name().clone();
    loop {
        match of(&name) {
            Reply::Silence => return None,
            Reply::Alias(other) => {
                let other = Name::from_ascii(format!("{other}.")).unwrap();
                add(&name, RData::CNAME(CNAME(other.clone())));
                name = other;
            }
            Reply::Addresses(addresses) => {
                for address in addresses {
                    let data = match address {
                        IpAddr::V4(v4) => RData::A(A(v4)),
                        IpAddr::V6(v6) => RData::AAAA(AAAA(v6)),
                    };
                    add(&name, data);
                }
                break;
            }
            Reply::Code(code) => {
                message.metadata.response_code = code;
                break;
            }
        }
    }
    message.add_query(query);
    Some(message)
}

/// A document whose pool has the addresses of these names' nodes.
fn text(server: SocketAddr, names: &[&str]) -> String {
    let pools = names.iter().enumerate().map(|(number, name)| {
        format!("[[pool]]\nname = \"p{number}\"\nnodes_from = \"dns:{name}\"\npolicy = \"random\"\n")
    });
    let pools: String = pools.collect();
    format!(
        "[cluster]\nkey_file = \"k\"\n[dns]\nservers = \"{server}\"\n{pools}[[service]]\nname = \"shop\"\n\
         listen = [\"192.0.2.100:80\"]\n[[service.route]]\npool = \"p0\"\n"
    )
}

/// The addresses of a name in a document.
fn addresses(document: &Document, name: &str) -> Vec<String> {
    document.addresses[name].iter().map(ToString::to_string).collect()
}

/// A source that tells of changes by itself.
#[derive(Debug)]
struct Told(Mutex<Option<Document>>);

impl Source for Told {
    fn newest(&self) -> Result<Document, Error> {
        let absent =
            || Error::Read { file: "told".into(), source: std::io::ErrorKind::NotFound.into(), remedy: None };
        self.0.lock().unwrap().clone().ok_or_else(absent)
    }

    fn followed(&self) -> Option<Result<Document, Error>> {
        Some(self.newest())
    }

    fn last_good(&self) -> Option<Document> {
        None
    }

    fn accept(&self, document: &Document) {
        assert!(document.addresses.is_empty(), "addresses are kept elsewhere");
    }

    fn follow(&self, _: &Document, _: Box<dyn Fn() + Send + Sync>) {}
}

/// A daemon that takes what holds.
struct Daemon {
    source: Resolved,
    told: Receiver<()>,
    in_force: Document,
}

impl Daemon {
    fn start(inner: Arc<dyn Source>, directory: &Path) -> Daemon {
        let source = Resolved::new(inner, "switch", directory);
        let in_force = source.newest().unwrap();
        source.accept(&in_force);
        let (tell, told) = channel();
        source.follow(&in_force, Box::new(move || tell.send(()).unwrap_or_default()));
        Daemon { source, told, in_force }
    }

    /// Takes documents as it is told of them, until one has these addresses of the name.
    fn wait_for(&mut self, name: &str, wanted: &[&str]) {
        let deadline = Instant::now() + PATIENCE;
        while addresses(&self.in_force, name) != wanted {
            let left = deadline.saturating_duration_since(Instant::now());
            self.told.recv_timeout(left).unwrap_or_else(|_| panic!("{:?}", self.in_force.addresses));
            self.follow();
        }
    }

    /// Takes a document if it holds.
    fn follow(&mut self) {
        let followed = self.source.followed().unwrap();
        if let Some(document) = followed.ok().filter(|document| document.check_text().is_ok()) {
            self.source.accept(&document);
            self.in_force = document;
        }
    }
}

/// A directory of a test, which is empty.
fn directory(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("switchback-dns-{name}-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// The copy on disk is written after the daemon has been told.
fn wait_for_kept(directory: &Path, wanted: &str) {
    let deadline = Instant::now() + PATIENCE;
    let kept = || fs::read_to_string(directory.join("addresses-switch")).unwrap();
    while kept() != wanted {
        assert!(Instant::now() < deadline, "{}", kept());
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_name_servers_say() {
    let server = NameServer::start();
    let [v4, v6] = [["192.0.2.1", "192.0.2.2"], ["2001:db8::1", "2001:db8::2"]]
        .map(|all| Reply::Addresses(all.iter().map(|address| address.parse().unwrap()).collect()));
    server.set("both", RecordType::A, v4.clone());
    server.set("both", RecordType::AAAA, v6.clone());
    server.set("v6", RecordType::A, Reply::Code(ResponseCode::NoError));
    server.set("v6", RecordType::AAAA, v6.clone());
    server.set("alias", RecordType::A, Reply::Alias("both"));
    server.set("neither", RecordType::A, Reply::Code(ResponseCode::NoError));
    server.set("neither", RecordType::AAAA, Reply::Code(ResponseCode::NoError));
    // Addresses of IPv6 do not stand in for those of IPv4 that could not be had.
    server.set("broken", RecordType::A, Reply::Code(ResponseCode::ServFail));
    server.set("broken", RecordType::AAAA, v6);
    server.set("silent", RecordType::A, Reply::Silence);
    let names = ["both", "v6", "alias", "neither", "broken", "silent", "unknown"];
    let document = Document::new(text(server.address, &names), Path::new("cluster.toml"));
    let (resolved, failed) = resolve(&document).unwrap();
    assert_eq!(addresses(&resolved, "both"), ["192.0.2.1", "192.0.2.2"]);
    assert_eq!(addresses(&resolved, "alias"), ["192.0.2.1", "192.0.2.2"]);
    assert_eq!(addresses(&resolved, "v6"), ["2001:db8::1", "2001:db8::2"]);
    assert_eq!(resolved.addresses.len(), 3);
    let begin = [
        "broken: the name server answers: Server Failure",
        "neither: it has no address",
        "silent: ",
        "unknown: there is no such name",
    ];
    assert_eq!(failed.len(), begin.len(), "{failed:?}");
    for (line, begin) in failed.iter().zip(begin) {
        assert!(line.starts_with(&format!("cannot resolve {begin}")), "{failed:?}");
    }
}

#[test]
fn addresses_follow_the_name_and_the_text_its_author() {
    let server = NameServer::start();
    server.set_addresses("app", &["192.0.2.1"]);
    let directory = directory("file");
    let file = directory.join("cluster.toml");
    fs::write(&file, text(server.address, &["app"])).unwrap();
    let mut daemon = Daemon::start(Arc::new(FileSource(file.clone())), &directory);
    assert_eq!(addresses(&daemon.in_force, "app"), ["192.0.2.1"]);

    // The file has changed, and nobody has asked for a reload.
    fs::write(&file, text(server.address, &["app", "other"])).unwrap();
    server.set_addresses("app", &["192.0.2.1", "192.0.2.2"]);
    daemon.wait_for("app", &["192.0.2.1", "192.0.2.2"]);
    assert!(!daemon.in_force.text.contains("other"));

    // A name without addresses does not replace what serves; the addresses of the others go on.
    let refused = daemon.source.newest().unwrap_err().to_string();
    assert!(refused.contains("no address of other is known, there is no such name"), "{refused}");
    server.set_addresses("app", &["192.0.2.2"]);
    daemon.wait_for("app", &["192.0.2.2"]);
    server.set_addresses("other", &["192.0.2.3"]);
    let deadline = Instant::now() + PATIENCE;
    let newest = loop {
        match daemon.source.newest() {
            Ok(document) => break document,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    };
    assert_eq!(addresses(&newest, "other"), ["192.0.2.3"]);

    wait_for_kept(&directory, "app 192.0.2.2\nother 192.0.2.3\n");

    // What fails takes nothing away, also from those who start now.
    server.set("app", RecordType::A, Reply::Code(ResponseCode::ServFail));
    server.set("other", RecordType::A, Reply::Silence);
    let begun = Instant::now();
    let next = Daemon::start(Arc::new(FileSource(file)), &directory);
    assert!(begun.elapsed() < Duration::from_secs(5), "a start does not wait for a name server");
    assert_eq!(addresses(&next.in_force, "app"), ["192.0.2.2"]);
    assert_eq!(addresses(&next.in_force, "other"), ["192.0.2.3"]);
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_document_waits_for_its_name() {
    let server = NameServer::start();
    server.set_addresses("app", &["192.0.2.1"]);
    let directory = directory("told");
    let document = |names: &[&str]| Document::new(text(server.address, names), Path::new("told"));
    let told = Arc::new(Told(Mutex::new(Some(document(&["app"])))));
    let mut daemon = Daemon::start(Arc::clone(&told) as Arc<dyn Source>, &directory);

    *told.0.lock().unwrap() = Some(document(&["app", "later"]));
    assert!(daemon.source.followed().unwrap().is_err());
    // The document in force has its addresses meanwhile.
    server.set_addresses("app", &["192.0.2.2"]);
    daemon.wait_for("app", &["192.0.2.2"]);
    assert!(!daemon.in_force.text.contains("later"));
    server.set_addresses("later", &["192.0.2.3"]);
    let deadline = Instant::now() + PATIENCE;
    while !daemon.in_force.text.contains("later") {
        daemon.told.recv_timeout(deadline.saturating_duration_since(Instant::now())).unwrap();
        daemon.follow();
    }
    assert_eq!(addresses(&daemon.in_force, "later"), ["192.0.2.3"]);

    // A daemon has refused a document, and the source has lost it: addresses go on.
    for lost in [Some(document(&["app", "later"])), None] {
        if let Some(document) = &lost {
            *told.0.lock().unwrap() =
                Some(Document { text: document.text.replace("random", "rundom"), ..document.clone() });
            assert!(daemon.source.followed().unwrap().unwrap().check_text().is_err());
        } else {
            *told.0.lock().unwrap() = None;
            assert!(daemon.source.followed().unwrap().is_err());
        }
        let wanted = if lost.is_some() { "192.0.2.4" } else { "192.0.2.5" };
        server.set_addresses("app", &[wanted]);
        daemon.wait_for("app", &[wanted]);
    }
    wait_for_kept(&directory, "app 192.0.2.5\nlater 192.0.2.3\n");
    fs::remove_dir_all(&directory).unwrap();
}
