//! A client says that it is another one.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::common::{Cluster, Result};
use crate::{PYTHON, change_config, curl, plan, program, url};

/// A server that reads fields as CGI does takes both spellings of a name for one.
#[test]
fn no_spelling_of_a_field_reaches_a_server_beside_ours() -> Result {
    let mut cluster = Cluster::prepare(plan(1, ""))?;
    change_config(&cluster, "server = \"127.0.0.1:80\"", "server = \"127.0.0.1:81\"")?;
    let mut server = cluster.lab.node(0).command(PYTHON);
    let mut server = server.arg(program("wsgi.py")).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut said = String::new();
    BufReader::new(server.stdout.take().expect("piped")).read_line(&mut said)?;
    assert_eq!(said, "listening\n");
    cluster.start_daemons()?;
    let client = cluster.client().ipv4().to_string();
    for http in ["--http1.1", "--http2"] {
        for name in ["X_Forwarded_For", "X-Forwarded_For", "X-Forwarded-For"] {
            let said = curl(&cluster, &[http, "-H", &format!("{name}: 192.0.2.250"), &url("/")])?;
            assert_eq!(said, client, "{http} {name}");
        }
    }
    server.kill()?;
    server.wait()?;
    cluster.down()
}
