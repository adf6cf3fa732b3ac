//! Parsers for the output of the demonstration's tools, and its tables.

use switchback_lab::{Error, Result};

use crate::table::{Align, Table};

/// The output format of curl, one line for each request.
pub const WRITE_OUT: &str =
    "%{num_connects} %{local_port} %{http_code} %header{x-node} %{size_download} %{url_effective}\n";

/// One request of [`connection`].
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    new_connections: u32,
    local_port: u16,
    status: u16,
    node: String,
    bytes: u64,
    url: String,
}

/// Response times, in wrk's format.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Latency {
    p50: Option<String>,
    p99: Option<String>,
}

/// The result of one load.
pub struct Load {
    pub name: String,
    /// Requests by node.
    pub nodes: Vec<u64>,
    /// Bytes that the nodes sent to the client directly.
    pub direct: u64,
    /// Bytes into and out of the switch.
    pub switched: u64,
    pub latency: Latency,
}

/// Parses the lines that [`WRITE_OUT`] makes.
pub fn parse_requests(text: &str) -> Result<Vec<Request>> {
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        Some(Request {
            new_connections: words.next()?.parse().ok()?,
            local_port: words.next()?.parse().ok()?,
            status: words.next()?.parse().ok()?,
            node: words.next()?.to_owned(),
            bytes: words.next()?.parse().ok()?,
            url: words.next()?.to_owned(),
        })
    };
    text.lines().map(|line| parse(line).ok_or_else(|| unexpected("curl", line))).collect()
}

/// A table of the requests, and the number of their connections.
pub fn connection(requests: &[Request]) -> String {
    let mut table = Table::new(&[
        ("REQUEST", Align::Left),
        ("STATUS", Align::Right),
        ("BYTES", Align::Right),
        ("X-NODE", Align::Left),
        ("CLIENT PORT", Align::Right),
    ]);
    for Request { local_port, status, node, bytes, url, .. } in requests {
        table.row([
            format!("GET {url}"),
            status.to_string(),
            bytes.to_string(),
            node.clone(),
            local_port.to_string(),
        ]);
    }
    let connections: u32 = requests.iter().map(|request| request.new_connections).sum();
    let mut nodes: Vec<&str> = requests.iter().map(|request| request.node.as_str()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    format!(
        "{}\n  {} requests, answered by {} nodes, on {connections} TCP connection{}.\n",
        table.render(2),
        requests.len(),
        nodes.len(),
        if connections == 1 { "" } else { "s" }
    )
}

/// The number of requests in nginx's stub_status: the third number after the line of titles.
pub fn parse_stub_status(text: &str) -> Result<u64> {
    let numbers = text.lines().skip_while(|line| !line.starts_with("server accepts")).nth(1);
    let requests = numbers.and_then(|line| line.split_whitespace().nth(2)?.parse().ok());
    requests.ok_or_else(|| unexpected("nginx", text))
}

/// The latency in wrk's output; an error if requests failed, which would make it meaningless.
pub fn parse_wrk(text: &str) -> Result<Latency> {
    let failed = |line: &&str| line.contains("Socket errors:") || line.contains("Non-2xx or 3xx responses:");
    if let Some(line) = text.lines().find(failed) {
        return Err(Error::Invalid(format!("requests failed during the load: {}", line.trim())));
    }
    let percentile = |which: &str| {
        let mut lines = text.lines().map(str::split_whitespace);
        lines.find_map(|mut words| (words.next() == Some(which)).then(|| words.next())?.map(str::to_owned))
    };
    let latency = Latency { p50: percentile("50%"), p99: percentile("99%") };
    if latency.p50.is_none() { Err(unexpected("wrk", text)) } else { Ok(latency) }
}

/// A table with a line for each load.
pub fn loads(loads: &[Load]) -> String {
    let nodes = loads.iter().map(|load| load.nodes.len()).max().unwrap_or(0);
    let names: Vec<String> = (0..nodes).map(|index| format!("NODE{index}")).collect();
    let mut columns = vec![("LOAD", Align::Left), ("REQUESTS", Align::Right)];
    columns.extend(names.iter().map(|name| (name.as_str(), Align::Right)));
    let rest = ["P50", "P99", "THROUGH THE SWITCH", "NODES TO CLIENT"];
    columns.extend(rest.map(|title| (title, Align::Right)));
    let mut table = Table::new(&columns);
    for load in loads {
        let mut cells = vec![load.name.clone(), load.nodes.iter().sum::<u64>().to_string()];
        cells.extend((0..nodes).map(|index| load.nodes.get(index).map_or("-".to_owned(), u64::to_string)));
        let Latency { p50, p99 } = &load.latency;
        cells.extend([p50, p99].map(|value| value.clone().unwrap_or_else(|| "-".to_owned())));
        cells.extend([mebibytes(load.switched), mebibytes(load.direct)]);
        table.row(cells);
    }
    table.render(2)
}

/// A closing sentence with the numbers of the last load.
pub fn what_to_notice(loads: &[Load]) -> String {
    let Some(load) = loads.last() else { return String::new() };
    format!(
        "What to notice: the nodes sent {} to the client from the VIP's own address, while all that passed \
         the switch,\nin and out together, was {}: requests and acknowledgments, not one byte of a response.",
        mebibytes(load.direct),
        mebibytes(load.switched)
    )
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn unexpected(program: &str, output: &str) -> Error {
    Error::Invalid(format!("unexpected output of {program}: {:?}", output.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_curl_prints_it() {
        let text = "1 40312 200 node0 100 http://192.0.2.100/small\n\
                    0 40312 200 node2 2048 http://192.0.2.100/img/\n";
        let requests = parse_requests(text).expect("two lines");
        assert_eq!(requests[0].node, "node0");
        assert!(connection(&requests).ends_with("2 requests, answered by 2 nodes, on 1 TCP connection.\n"));
        assert!(parse_requests("0 0 000\n").is_err());
    }

    #[test]
    fn nginx_counts_requests_in_the_third_column() {
        let text =
            "Active connections: 1 \nserver accepts handled requests\n 16 16 31 \nReading: 0 Writing: 1\n";
        assert_eq!(parse_stub_status(text).ok(), Some(31));
        assert!(parse_stub_status("404").is_err());
    }

    #[test]
    fn latency_is_read_from_a_load_without_failures() {
        let text = "  Latency Distribution\n     50%  633.00us\n     75%    1.10ms\n     99%    3.50ms\n";
        let latency = parse_wrk(text).expect("a distribution");
        assert_eq!((latency.p50.as_deref(), latency.p99.as_deref()), (Some("633.00us"), Some("3.50ms")));
        let failed = format!("{text}  Socket errors: connect 0, read 0, write 0, timeout 2\n");
        assert!(parse_wrk(&failed).is_err_and(|error| error.to_string().contains("timeout 2")));
    }
}
