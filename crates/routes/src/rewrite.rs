//! Heads of requests as their servers get them.
//!
//! What a route does not change stays byte for byte as the client has sent it, and in order: a server sees the request that
//! was read, but for the changes. The request is as long and as many as before: nothing here touches a field that says where
//! it ends, and all that is written was checked to be one name, one value, or one target.

use std::borrow::Cow;

use switchback_config::{NewField, Rewrite, is_same_variable};
use switchback_http::{Form, Head, Reject};

/// The head that `text` begins with, with these changes, without the empty line that may stand before it.
///
/// Fields that CGI does not tell from one that is set or removed go with it. A request for another host has its target in
/// origin form, because an authority in it had to say the same as `Host` (RFC 9112 section 3.2.2).
pub fn rewritten<'a>(text: &'a [u8], head: &Head<'_>, rewrite: &Rewrite) -> Result<Cow<'a, [u8]>, Reject> {
    let text = &text[head.start..head.len];
    if rewrite.is_empty() {
        return Ok(Cow::Borrowed(text));
    }
    let mut lines = text.split_inclusive(|byte| *byte == b'\n');
    let mut out = Vec::with_capacity(text.len() + 256);
    let line = lines.next().unwrap_or_default();
    let (before, behind) = (head.method.len() + 1, head.method.len() + 1 + head.target.raw.len());
    out.extend_from_slice(&line[..before]);
    out.extend_from_slice(target(head, rewrite)?.as_bytes());
    out.extend_from_slice(&line[behind..]);
    let mut host = rewrite.host.as_ref();
    let mut unset: Vec<&NewField> = rewrite.set.iter().collect();
    for line in lines {
        let Some(name) = name(line) else { break };
        let is = |other: &str| is_same_variable(other, name);
        if name.eq_ignore_ascii_case("host") && rewrite.host.is_some() {
            host.take().into_iter().for_each(|host| write(&mut out, name, host));
        } else if rewrite.set.iter().any(|field| is(&field.name)) {
            if let Some(first) = unset.iter().position(|field| is(&field.name)) {
                let field = unset.remove(first);
                write(&mut out, &field.name, &field.value);
            }
        } else if !rewrite.remove.iter().any(|removed| is(removed)) {
            out.extend_from_slice(line);
        }
    }
    host.into_iter().for_each(|host| write(&mut out, "Host", host));
    unset.into_iter().chain(&rewrite.add).for_each(|field| write(&mut out, &field.name, &field.value));
    out.extend_from_slice(b"\r\n");
    Ok(Cow::Owned(out))
}

fn write(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
}

/// The name of a field; None in the empty line.
pub(crate) fn name(line: &[u8]) -> Option<&str> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    std::str::from_utf8(&line[..colon]).ok()
}

/// The target of the request for the server.
fn target<'a>(head: &Head<'a>, rewrite: &Rewrite) -> Result<Cow<'a, str>, Reject> {
    let raw = head.target.raw;
    let start = match head.target.form {
        Form::Asterisk => return Ok(raw.into()),
        Form::Origin => 0,
        // The scheme has no slash in it.
        Form::Absolute { authority } => raw.find("//").map_or(0, |at| at + 2 + authority.len()),
    };
    let query = raw.find('?').unwrap_or(raw.len());
    if rewrite.path.is_none() && (start == 0 || rewrite.host.is_none()) {
        return Ok(raw.into());
    }
    let path = match &rewrite.path {
        Some(change) => change.for_server(head.path())?.into(),
        None => Cow::Borrowed(head.path()),
    };
    let site = if rewrite.host.is_some() { "" } else { &raw[..start] };
    Ok(format!("{site}{path}{}", &raw[query..]).into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use switchback_config::PathChange;
    use switchback_http::{Limits, Progress, parse_head, path};

    use super::*;

    fn parsed(text: &[u8]) -> Option<Head<'_>> {
        match parse_head(text, &Limits::default()) {
            Ok(Progress::Complete(head)) => Some(head),
            _ => None,
        }
    }

    fn changed(text: &str, rewrite: &Rewrite) -> Result<String, Reject> {
        let head = parsed(text.as_bytes()).expect(text);
        rewritten(text.as_bytes(), &head, rewrite).map(|text| String::from_utf8(text.into_owned()).unwrap())
    }

    fn fields(fields: &[(&str, &str)]) -> Vec<NewField> {
        fields.iter().map(|(name, value)| NewField { name: (*name).into(), value: (*value).into() }).collect()
    }

    fn prefix(from: &str, to: &str) -> Rewrite {
        let path = Some(PathChange::Prefix { from: from.to_owned(), to: to.to_owned() });
        Rewrite { path, ..Rewrite::default() }
    }

    #[test]
    fn fields_are_set_added_and_removed() {
        let rewrite = Rewrite {
            set: fields(&[("X-Tenant", "7"), ("X-New", "")]),
            add: fields(&[("Via", "1.1 a"), ("Via", "1.1 b")]),
            remove: vec!["x-debug".to_owned()],
            ..Rewrite::default()
        };
        let text = "\r\nPOST /a HTTP/1.1\r\nHost: a\r\nx-tenant: 1\r\nB:  c \r\nX_DEBUG: 1\r\nvia: 1.0 c\r\nX_Tenant: 2\r\n\
                    X-Debug-More: 1\r\nContent-Length: 4\r\n\r\nbody";
        assert_eq!(
            changed(text, &rewrite).unwrap(),
            "POST /a HTTP/1.1\r\nHost: a\r\nX-Tenant: 7\r\nB:  c \r\nvia: 1.0 c\r\nX-Debug-More: 1\r\nContent-Length: 4\r\n\
             X-New: \r\nVia: 1.1 a\r\nVia: 1.1 b\r\n\r\n"
        );
    }

    #[test]
    fn a_request_for_another_host_says_so_once() {
        let rewrite = Rewrite { host: Some("b".to_owned()), ..Rewrite::default() };
        for (text, expected) in [
            (
                "GET /x?y HTTP/1.1\r\nA: 1\r\nhost: a:80\r\n\r\n",
                "GET /x?y HTTP/1.1\r\nA: 1\r\nhost: b\r\n\r\n",
            ),
            ("GET http://a/x?y HTTP/1.1\r\nHost: a\r\n\r\n", "GET /x?y HTTP/1.1\r\nHost: b\r\n\r\n"),
            ("GET http://a?y HTTP/1.0\r\n\r\n", "GET /?y HTTP/1.0\r\nHost: b\r\n\r\n"),
            ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: b\r\n\r\n"),
        ] {
            assert_eq!(changed(text, &rewrite).unwrap(), expected);
        }
    }

    #[test]
    fn the_beginning_of_a_path_is_replaced() {
        for (from, to, sent, expected) in [
            // The table of HTTPPathModifier in the Gateway API.
            ("/foo", "/xyz", "/foo/bar", "/xyz/bar"),
            ("/foo", "/xyz/", "/foo/bar", "/xyz/bar"),
            ("/foo/", "/xyz", "/foo/bar", "/xyz/bar"),
            ("/foo/", "/xyz/", "/foo/bar", "/xyz/bar"),
            ("/foo", "/xyz", "/foo", "/xyz"),
            ("/foo", "/xyz", "/foo/", "/xyz/"),
            ("/foo", "/", "/foo/bar", "/bar"),
            ("/foo", "/", "/foo/", "/"),
            ("/foo", "/", "/foo", "/"),
            // Prefixes of Switchback are texts.
            ("/foo", "/xyz", "/foobar", "/xyzbar"),
            ("", "/app", "/", "/app/"),
            ("/foo", "/xyz", "/foo?a=/foo&b=?", "/xyz?a=/foo&b=?"),
            ("/foo", "/xyz", "http://a/foo/b?c", "http://a/xyz/b?c"),
            ("", "/app", "http://a?c", "http://a/app/?c"),
            ("", "/app", "*", "*"),
            // What servers read in one way stays as it was sent.
            ("/foo/", "/xyz/", "/foo/%2561%2Fb//c", "/xyz/%2561%2Fb//c"),
            ("/foo/", "/xyz/", "/%66oo/%2561", "/xyz/%2561"),
            // Dot segments would lead out.
            ("/foo/", "/xyz/", "/foo/x/../../foo/y", "/xyz/y"),
            ("/foo/", "/xyz/", "/foo/x/../y", "/xyz/x/../y"),
        ] {
            let text = format!("OPTIONS {sent} HTTP/1.1\r\nHost: a\r\n\r\n");
            let expected = format!("OPTIONS {expected} HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(changed(&text, &prefix(from, to)), Ok(expected), "{from} {to}");
        }
        for sent in ["/foo../x", "/foo..%2fx", "/foo..;/x"] {
            let text = format!("GET {sent} HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(changed(&text, &prefix("/foo", "/a/")), Err(Reject::AmbiguousPath), "{sent}");
        }
    }

    fn some_fields() -> impl Strategy<Value = Vec<(String, String)>> {
        let name = "(X-[AaBb]|x_[ab]|Accept|Cookie|C|[Cc]onnection|Via)";
        let value = prop_oneof![3 => "[ -~]{0,8}", 1 => Just("close".to_owned()), 1 => Just("keep-alive, Upgrade".to_owned())];
        proptest::collection::vec((name, value), 0..8)
    }

    fn request() -> impl Strategy<Value = String> {
        let target = "(http://h:80)?(/[ab.]{0,3}|/%2[ef]|/;a){1,4}(\\?[a?/]{0,3})?";
        let end = prop::sample::select(vec![
            "",
            "Content-Length: 3\r\n",
            "Transfer-Encoding: chunked\r\n",
            "Expect: 100-continue\r\nContent-Length: 3\r\n",
            "Upgrade: x\r\nConnection: upgrade\r\n",
        ]);
        let empty = prop::sample::select(vec!["", "\r\n"]);
        (empty, "(GET|POST)", target, "1\\.[01]", some_fields(), end).prop_map(
            |(empty, method, target, version, fields, end)| {
                let fields: String =
                    fields.iter().map(|(name, value)| format!("{name}:{value}\r\n")).collect();
                format!("{empty}{method} {target} HTTP/{version}\r\nHost: h:80\r\n{fields}{end}\r\n")
            },
        )
    }

    fn rewrite() -> impl Strategy<Value = Rewrite> {
        let field = |name: &'static str| {
            let value = "([!-~]([ -~]{0,6}[!-~])?)?";
            (name, value).prop_map(|(name, value)| NewField { name, value })
        };
        let path = prop_oneof![
            1 => Just(None),
            1 => "/[ab]{0,2}".prop_map(|path| Some(PathChange::Whole(path))),
            2 => "(/[ab]{1,2}){0,2}/?".prop_map(|to| {
                let to = if to.is_empty() { "/".to_owned() } else { to };
                Some(PathChange::Prefix { from: String::new(), to })
            }),
        ];
        (
            proptest::option::of("[a-c]{1,3}"),
            path,
            proptest::collection::vec(field("X-a"), 0..2),
            proptest::collection::vec(field("(Via|x-n)"), 0..3),
            proptest::collection::vec("(x-b|c)", 0..2),
        )
            .prop_map(|(host, path, set, add, remove)| Rewrite { host, path, set, add, remove })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        /// The result is one head, and the same request but for the changes.
        #[test]
        fn nothing_else_changes(text in request(), rewrite in rewrite(), behind in "[ -~]{0,9}") {
            let text = text + &behind;
            let Some(before) = parsed(text.as_bytes()) else { return Ok(()) };
            let Ok(out) = rewritten(text.as_bytes(), &before, &rewrite) else {
                prop_assert!(!path::is_plain(before.path()));
                return Ok(());
            };
            let after = parsed(&out);
            prop_assert!(after.is_some(), "{}", out.escape_ascii());
            let after = after.unwrap();
            prop_assert_eq!(after.len, out.len(), "no byte is behind the head");
            prop_assert_eq!(after.method, before.method);
            prop_assert_eq!(after.version, before.version);
            prop_assert_eq!(after.body, before.body);
            prop_assert_eq!(
                (after.keep_alive, after.expect_continue, after.tunnel),
                (before.keep_alive, before.expect_continue, before.tunnel)
            );
            prop_assert_eq!(after.host, rewrite.host.as_deref().or(before.host));
            let query = |head: &Head<'_>| head.target.raw.split_once('?').map(|(_, query)| query.to_owned());
            prop_assert_eq!(query(&after), query(&before));
            match &rewrite.path {
                None => prop_assert_eq!(after.path(), before.path()),
                Some(PathChange::Whole(path)) => prop_assert_eq!(after.path(), path),
                Some(PathChange::Prefix { to, .. }) => {
                    let behind = |reading: &str| format!("{reading}/").starts_with(to.as_str());
                    prop_assert!(path::readings(after.path()).iter().all(|reading| behind(reading)));
                }
            }

            // Lines that nothing is said of stay as they are, in order, and only those of the route come to them.
            let is_named = |line: &str| {
                let name = line.split(':').next().unwrap();
                let mut names = rewrite.set.iter().map(|field| &field.name).chain(&rewrite.remove);
                names.any(|other| is_same_variable(other, name)) || rewrite.host.is_some() && name == "Host"
            };
            let lines = |text: &[u8]| -> Vec<String> {
                let text = String::from_utf8(text.to_vec()).unwrap();
                text.split_inclusive("\r\n").skip(1).map(str::to_owned).collect()
            };
            let mut kept = lines(&text.as_bytes()[before.start..before.len]);
            kept.retain(|line| !is_named(line));
            kept.pop();
            let added = rewrite.add.iter().map(|field| format!("{}: {}\r\n", field.name, field.value));
            kept.extend(added);
            let mut left = lines(&out);
            left.pop();
            left.retain(|line| !is_named(line));
            prop_assert_eq!(left, kept);
            for field in &rewrite.set {
                let mut values = after.headers().filter(|(name, _)| is_same_variable(name, &field.name));
                prop_assert_eq!(values.next().map(|(_, value)| value), Some(field.value.as_bytes()));
                prop_assert!(values.next().is_none());
            }
            for removed in &rewrite.remove {
                prop_assert!(!after.headers().any(|(name, _)| is_same_variable(name, removed)));
            }
        }

        /// A second time changes nothing, but for what is added and for prefixes.
        #[test]
        fn twice_is_once(text in request(), rewrite in rewrite()) {
            let Some(head) = parsed(text.as_bytes()) else { return Ok(()) };
            let path = rewrite.path.filter(|path| matches!(path, PathChange::Whole(_)));
            let rewrite = Rewrite { path, add: Vec::new(), ..rewrite };
            let once = rewritten(text.as_bytes(), &head, &rewrite).unwrap();
            let head = parsed(&once).unwrap();
            let twice = rewritten(&once, &head, &rewrite).unwrap();
            prop_assert_eq!(twice.as_ref(), once.as_ref());
        }
    }
}
