//! Routes that change requests: what servers get.

use std::fs;

use crate::common::{Plan, Result, text};
use crate::{curl, prepare_echo, url};

const ROUTES: &str = r#"
[[service.route]]
path = "/api/"
rewrite = { host = "internal.example", prefix = "/v2" }
request_header = { set = { name = "X-Tenant", value = "7" }, add = [{ name = "Via", value = "1.1 shop" }], remove = ["X-Debug", "cookie"] }
pool = "web"

[[service.route]]
path = "/old/"
rewrite.path = "/new"
pool = "img"
"#;
const CLIENT: &[&str] = &["-H", "X_TENANT: 1", "-H", "x-debug: 1", "-H", "Cookie: a=b", "-H", "X-Kept:  1"];

/// What one server has got: the request line, the fields with names in lower case, and the body.
struct Got {
    line: String,
    fields: Vec<String>,
    body: String,
}

fn read(echoed: &str) -> Got {
    let (head, body) = echoed.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{echoed:?}"));
    let (line, fields) = head.split_once("\r\n").unwrap_or_else(|| panic!("{echoed:?}"));
    let lower = |field: &str| {
        let (name, value) = field.split_once(": ").unwrap_or_else(|| panic!("{field:?}"));
        format!("{}: {value}", name.to_lowercase())
    };
    Got { line: line.to_owned(), fields: fields.split("\r\n").map(lower).collect(), body: body.to_owned() }
}

impl Got {
    fn values(&self, name: &str) -> Vec<&str> {
        let field = |field: &'_ String| field.starts_with(&format!("{name}: "));
        self.fields.iter().filter(|one| field(one)).map(|field| &field[name.len() + 2..]).collect()
    }
}

/// Requests for routes that change them in different ways and for one that does not, in turn on one connection, with bodies
/// of both kinds. The second pool is another node's, so the connection moves there, or the request is forwarded.
#[test]
fn servers_get_what_routes_make_of_requests() -> Result {
    let plan = Plan { tls: Some(String::new()), tls_routes: ROUTES, ..Plan::default() };
    let mut cluster = prepare_echo(plan)?;
    cluster.start_daemons()?;
    let file = cluster.lab.directory().join("sent");
    let long = "0123456789abcdef".repeat(1 << 14);
    fs::write(&file, &long)?;
    for http in ["--http1.1", "--http2"] {
        let out: Vec<_> = (0..6).map(|index| cluster.lab.directory().join(format!("got{index}"))).collect();
        let sent = format!("@{}", file.display());
        let bodies: [&[&str]; 2] = [&[], &["-H", "Transfer-Encoding: chunked"]];
        let mut said = String::new();
        for (round, body) in bodies.iter().enumerate() {
            let mut words =
                vec![http, "-w", "%{response_code} %header{x-node} %{num_connects}\\n", "-H", "Expect:"];
            words.extend(CLIENT.iter().chain(body.iter()).copied());
            words.extend(["--data-binary", &sent]);
            let urls = [url("/api/a%2561?b=/api/"), url("/old/x?y"), url("/api")];
            let out = &out[3 * round..][..3];
            for (url, out) in urls.iter().zip(out) {
                words.extend(["-o", text(out), url]);
            }
            said += &curl(&cluster, &words)?;
        }
        let expected = "200 node0 1\n200 node1 0\n200 node0 0\n".repeat(2);
        assert_eq!(said, expected, "{http}");
        let got: Vec<Got> =
            out.iter().map(|out| Ok(read(&fs::read_to_string(out)?))).collect::<Result<_>>()?;
        for (number, got) in got.iter().enumerate() {
            let (line, host, tenant, via, debug, cookie): (_, _, &[&str], &[&str], &[&str], &[&str]) =
                match number % 3 {
                    0 => ("/v2/a%2561?b=/api/", "internal.example", &["7"], &["1.1 shop"], &[], &[]),
                    1 => ("/new?y", crate::NAME, &[], &[], &["1"], &["a=b"]),
                    _ => ("/api", crate::NAME, &[], &[], &["1"], &["a=b"]),
                };
            assert_eq!(got.line, format!("POST {line} HTTP/1.1"), "{http} {number}");
            assert_eq!(got.values("host"), [host], "{http} {number}");
            assert_eq!(got.values("x-forwarded-host"), [crate::NAME], "{http} {number}");
            assert_eq!(got.values("x-tenant"), tenant, "{http} {number}");
            assert_eq!(got.values("x_tenant").is_empty(), !tenant.is_empty(), "{http} {number}");
            assert_eq!(got.values("via"), via, "{http} {number}");
            assert_eq!(got.values("x-debug"), debug, "{http} {number}");
            assert_eq!(got.values("cookie"), cookie, "{http} {number}");
            assert_eq!(got.values("x-kept").len(), 1, "{http} {number}");
            if got.values("transfer-encoding").is_empty() {
                assert!(got.body == long, "{http} {number}: the body is not what was sent");
            } else {
                assert!(
                    got.body.contains("0123456789abcdef") && got.body.ends_with("0\r\n\r\n"),
                    "{http} {number}"
                );
            }
        }
    }
    cluster.down()
}
