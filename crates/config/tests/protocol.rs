//! What nodes speak to servers, and how they check those that speak HTTP/2.

#[allow(dead_code)] // Another test uses all of it.
mod common;

use common::{GOOD, good, lines, read};
use switchback_config::{Check, ServerProtocol};

/// The good file, whose only service is one with TLS, with `lines` in its pool. They begin in the file's 17th line.
fn grpc(lines: &str) -> String {
    let pool = GOOD.split_once("\n[[service]]").unwrap().0;
    format!(
        "{pool}{lines}\n[[service]]\nname = \"greeter\"\nlisten = [\"192.0.2.100:443\"]\n\
         tls = {{ server = \"127.0.0.1:50051\", certificate = [{{ chain = \"a.pem\", key = \"a.key\" }}] }}\n\
         [[service.route]]\npool = \"web\"\n"
    )
}

fn told(text: &str) -> Vec<String> {
    let lines = lines(read(text));
    lines.iter().map(|line| line.strip_prefix("etc/cluster.toml:").unwrap_or(line).to_owned()).collect()
}

#[test]
fn a_pool_says_what_its_servers_speak() {
    let protocol = |lines: &str| good(&grpc(lines)).pools[0].protocol;
    assert_eq!(protocol(""), ServerProtocol::Http11);
    for protocol_of_all in ServerProtocol::ALL {
        assert_eq!(protocol(&format!("protocol = \"{protocol_of_all}\"\nresume = \"off\"")), protocol_of_all);
    }
    assert_eq!(protocol("protocol = \"http/1.1\"\nresume = \"range\""), ServerProtocol::Http11);
    assert_eq!(
        told(&grpc("protocol = \"grpc\"")),
        ["17:12: unknown protocol \"grpc\", allowed: http/1.1, h2c"]
    );
    assert_eq!(told(&grpc("protocol = \"h2\"")), ["17:12: unknown protocol \"h2\", did you mean \"h2c\"?"]);
    assert_eq!(
        told(&grpc("protocol = \"h2c\"\nresume = \"repeat\"")),
        ["18:10: resume \"repeat\" with protocol \"h2c\", allowed is \"off\", or protocol \"http/1.1\""]
    );
}

#[test]
fn only_agents_choose_what_servers_get() {
    let whose = "protocol \"h2c\" in pool \"web\" of a service";
    let plain = GOOD.replace("policy = \"round-robin\"", "policy = \"fill\"\nprotocol = \"h2c\"");
    assert_eq!(
        told(&plain),
        [format!(
            "17:12: {whose} without TLS, whose servers get what clients send, leave the line out, and set h2c = true in the \
             route"
        )]
    );
    good(&plain.replace("h2c", "http/1.1"));
    let passed = "tls = { passthrough = true }\n[[service.route]]\npool = \"web\"\n";
    let text = grpc("protocol = \"h2c\"");
    let text = format!("{}{passed}", text.split_once("tls = ").unwrap().0);
    assert_eq!(
        told(&text),
        [format!("17:12: {whose} with passthrough, whose servers get what clients send, leave the line out")]
    );
}

#[test]
fn checks_ask_servers_of_grpc_for_a_service() {
    let check = |lines: &str| good(&grpc(lines)).pools[0].health.clone().unwrap().check;
    for service in ["", "helloworld.Greeter"] {
        let check = check(&format!("protocol = \"h2c\"\nhealth = {{ grpc = {service:?} }}"));
        assert_eq!(check, Check::Grpc { service: service.to_owned() });
        assert_eq!(check.to_string(), format!("gRPC {service:?}"));
    }
    assert_eq!(
        told(&grpc("health = { grpc = \"\" }")),
        ["17:19: grpc with protocol \"http/1.1\", allowed is it only with protocol \"h2c\""]
    );
    assert_eq!(
        told(&grpc("protocol = \"h2c\"\nhealth = { grpc = \"\", path = \"/\" }")),
        ["18:19: grpc with path, allowed is one of the two"]
    );
    assert_eq!(
        told(&grpc("protocol = \"h2c\"\nhealth = { grpc = \"a b\" }")),
        [
            "18:19: bad grpc \"a b\", allowed is the name of a service, at most 255 visible ASCII characters, or \"\" for \
             the server as a whole"
        ]
    );
}
