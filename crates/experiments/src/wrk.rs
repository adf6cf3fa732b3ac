//! Runs wrk on a client and parses its output.

use std::time::Duration;

use switchback_lab::{Error, Host, Result};

/// Time that wrk may take beyond the load, for connecting and printing.
const SLACK: Duration = Duration::from_secs(15);

/// The parameters of wrk, with one thread.
#[derive(Clone, Debug)]
pub(super) struct Load<'a> {
    pub(super) url: &'a str,
    pub(super) connections: u32,
    /// Sends `Connection: close` with each request.
    pub(super) close: bool,
    /// Additional header fields of each request.
    pub(super) fields: &'a [String],
    pub(super) seconds: u32,
}

/// The result of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadResult {
    /// Answered requests.
    pub requests: u64,
    /// Requests per second, by wrk's clock.
    pub requests_per_s: f64,
    /// Bytes of responses per second, with their heads.
    pub bytes_per_s: f64,
    /// Median of the latency.
    pub p50: Duration,
    /// 99th percentile of the latency.
    pub p99: Duration,
    /// Errors by kind.
    pub errors: Errors,
}

impl LoadResult {
    /// A sum over all requests, for each of them; None without requests.
    pub fn per_request(&self, sum: f64) -> Option<f64> {
        (self.requests > 0).then(|| sum / self.requests as f64)
    }
}

/// Errors as wrk counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// Connections that could not be made.
    pub connect: u64,
    /// Failed reads: also connections that ended in the middle of a response.
    pub read: u64,
    /// Failed writes.
    pub write: u64,
    /// Requests without an answer for two seconds.
    pub timeout: u64,
    /// Responses with a status below 200 or above 399.
    pub status: u64,
}

impl Errors {
    /// The sum of all kinds.
    pub fn total(&self) -> u64 {
        self.connect + self.read + self.write + self.timeout + self.status
    }
}

impl Load<'_> {
    pub(super) fn run(&self, client: &Host) -> Result<LoadResult> {
        let connections = format!("-c{}", self.connections);
        let duration = format!("-d{}s", self.seconds);
        let mut words = vec!["wrk", "-t1", &connections, &duration, "--latency"];
        if self.close {
            words.extend(["-H", "Connection: close"]);
        }
        words.extend(self.fields.iter().flat_map(|field| ["-H", field]));
        words.push(self.url);
        let timeout = SLACK + Duration::from_secs(self.seconds.into());
        parse(&client.run_within(timeout, words)?.success()?)
    }
}

fn parse(text: &str) -> Result<LoadResult> {
    let unexpected = || Error::Invalid(format!("unexpected output of wrk: {:?}", text.trim_end()));
    try_parse(text).ok_or_else(unexpected)
}

fn try_parse(text: &str) -> Option<LoadResult> {
    let lines = || text.lines().map(str::trim);
    let after = |prefix: &str| lines().find_map(|line| line.strip_prefix(prefix)).map(str::trim);
    // "412345 requests in 5.00s, 132.12MB read"
    let requests = lines().find_map(|line| line.split_once(" requests in "))?.0.parse().ok()?;
    let errors = Errors {
        status: after("Non-2xx or 3xx responses:").map_or(Some(0), |count| count.parse().ok())?,
        ..after("Socket errors:").map_or(Some(Errors::default()), socket_errors)?
    };
    // After the title, since the lines above it also have percentages.
    let percentile = |which: &str| {
        let distribution = lines().skip_while(|line| *line != "Latency Distribution");
        distribution.filter_map(|line| line.strip_prefix(which)).find_map(|value| duration(value.trim()))
    };
    Some(LoadResult {
        requests,
        requests_per_s: after("Requests/sec:")?.parse().ok()?,
        bytes_per_s: bytes(after("Transfer/sec:")?)?,
        p50: percentile("50%")?,
        p99: percentile("99%")?,
        errors,
    })
}

/// "connect 0, read 12, write 0, timeout 3"
fn socket_errors(text: &str) -> Option<Errors> {
    let mut errors = Errors::default();
    for part in text.split(',') {
        let (kind, count) = part.trim().split_once(' ')?;
        let count = count.parse().ok()?;
        match kind {
            "connect" => errors.connect = count,
            "read" => errors.read = count,
            "write" => errors.write = count,
            "timeout" => errors.timeout = count,
            _ => return None,
        }
    }
    Some(errors)
}

/// "633.00us", "1.10ms", "1.05s", "1.02m", "1.00h"
fn duration(text: &str) -> Option<Duration> {
    let (value, unit) = split_unit(text)?;
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(value * seconds).ok()
}

/// "532.00B", "26.41MB": wrk's units are powers of 1024.
fn bytes(text: &str) -> Option<f64> {
    let (value, unit) = split_unit(text)?;
    let power = ["B", "KB", "MB", "GB", "TB", "PB"].iter().position(|known| *known == unit)?;
    Some(value * 1024f64.powi(i32::try_from(power).ok()?))
}

fn split_unit(text: &str) -> Option<(f64, &str)> {
    let at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (value, unit) = text.split_at(at);
    Some((value.trim().parse().ok()?, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "Running 2s test @ http://192.0.2.20/small
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   414.73us  150.52us   5.61ms   89.13%
    Req/Sec    76.05k     3.51k   81.17k    70.00%
  Latency Distribution
     50%  399.00us
     75%  452.00us
     90%    1.53ms
     99%    1.08s 
  151352 requests in 2.00s, 49.65MB read
Requests/sec:  75657.42
Transfer/sec:     24.82MB
";

    #[test]
    fn a_load_without_errors_is_read() {
        let expected = LoadResult {
            requests: 151_352,
            requests_per_s: 75657.42,
            bytes_per_s: 24.82 * 1024.0 * 1024.0,
            p50: Duration::from_micros(399),
            p99: Duration::from_millis(1080),
            errors: Errors::default(),
        };
        assert_eq!(parse(GOOD).expect("wrk's own words"), expected);
    }

    #[test]
    fn errors_are_read_each_by_its_kind() {
        let text = GOOD.replace(
            "Requests/sec:",
            "  Socket errors: connect 1, read 20, write 3, timeout 4\n  Non-2xx or 3xx responses: 500\nRequests/sec:",
        );
        let errors = parse(&text).expect("wrk's own words").errors;
        assert_eq!(errors, Errors { connect: 1, read: 20, write: 3, timeout: 4, status: 500 });
        assert_eq!(errors.total(), 528);
    }

    #[test]
    fn a_load_that_nobody_answered_has_no_requests_rather_than_no_result() {
        let text = "Running 1s test @ http://192.0.2.99/
  1 threads and 2 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     0.00us    0.00us   0.00us    -nan%
    Req/Sec     0.00      0.00     0.00      -nan%
  Latency Distribution
     50%    0.00us
     75%    0.00us
     90%    0.00us
     99%    0.00us
  0 requests in 1.00s, 0.00B read
  Socket errors: connect 0, read 0, write 0, timeout 2
Requests/sec:      0.00
Transfer/sec:       0.00B
";
        let result = parse(text).expect("wrk's own words");
        assert_eq!((result.requests, result.errors.timeout), (0, 2));
    }

    #[test]
    fn other_output_is_an_error_that_shows_it() {
        for text in ["", "unable to connect to 192.0.2.1:80 Connection refused\n", &GOOD.replace("MB", "XB")]
        {
            assert!(parse(text).is_err_and(|error| error.to_string().contains("unexpected output of wrk")));
        }
    }
}
