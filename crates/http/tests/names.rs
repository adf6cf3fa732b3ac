//! Positions of cookie names in requests and responses.

mod following;

use following::{begin, follow_pieces};
use switchback_http::framing::generated::{SB_FRAMING_NAME, sb_framing};
use switchback_http::framing::{self, Followed, Framing, Table};

fn follow(table: &Table, pieces: &[&[u8]], wanted: &str) -> (Followed, Framing, Vec<usize>) {
    follow_pieces(table, begin(), pieces, false, wanted.as_bytes())
}

/// Follows `marked` without its `^`, whole and split at every byte. Each `^` stands before the `=` of a name to be
/// found.
fn check(table: &Table, wanted: &str, marked: &str) {
    let text = marked.replace('^', "");
    let expected: Vec<_> = marked.match_indices('^').enumerate().map(|(nth, (at, _))| at - nth).collect();
    let bytes = text.as_bytes();
    let whole = follow(table, &[bytes], wanted);
    let what = format!("{wanted:?} in {marked:?}");
    assert_eq!((whole.0, &whole.2), (Followed::Ends(bytes.len()), &expected), "{what}");
    for split in 0..=bytes.len() {
        let in_two = follow(table, &[&bytes[..split], &bytes[split..]], wanted);
        assert_eq!(in_two, whole, "{what}, split at {split}");
    }
    let single: Vec<_> = bytes.chunks(1).collect();
    assert_eq!(follow(table, &single, wanted), whole, "{what}, byte by byte");
    // The result must be the same when no name is searched for.
    let (mut framing, ends) = (begin(), Followed::Ends(bytes.len()));
    assert_eq!((table.follow(&mut framing, bytes, false), framing), (ends, whole.1), "{what}");
}

/// The longest possible name.
const LONG: &str = "ASP.NET_SessionId-0123456789abcd";

#[test]
fn names_in_cookie() {
    let rows = [
        ("id", "id^=1"),
        ("id", "id^="),
        ("id", "id^=1; a=2"),
        ("id", "a=2; id^=1"),
        ("id", "a=2;id^=1"),
        ("id", "a=2 ;\t id^=1;"),
        ("id", ";; ;id^=1"),
        ("id", "id^=1; id^=2; id^=3"),
        ("id", "id^=a=b=id=c"),
        ("id", "id^==1"),
        ("id", "a=id=1"),
        ("id", "id"),
        ("id", "id; a=1"),
        ("id", "id;id^=1"),
        ("id", "i=1; d=1; iid=1; idd=1; id1=1; i"),
        ("id", "ID=1; Id=2"),
        ("id", "id =1; i d=2"),
        ("id", "a id=1"),
        ("id", "a=\"; id^=1\""),
        ("id", ""),
        ("id", "="),
        ("iid", "iiid=1; iid^=2"),
        ("i", "i^=1; ii=2"),
        ("a=b", "a=b^=c; a=1; a==b=c"),
        (LONG, "ASP.NET_SessionId-0123456789abcd^=1; ASP.NET_SessionId-0123456789abcde=1"),
        ("", "id=1; =2;"),
        ("", "=; ;"),
    ];
    for (wanted, value) in rows {
        for field in ["Cookie: ", "cookie:", "COOKIE:\t "] {
            check(
                framing::requests(),
                wanted,
                &format!("GET / HTTP/1.1\r\n{field}{value}\r\nHost: a\r\n\r\n"),
            );
        }
    }
}

#[test]
fn names_in_set_cookie() {
    let rows = [
        ("id", "id^=1"),
        ("id", "id^="),
        ("id", "id^=1; Path=/; HttpOnly"),
        ("id", "\t  id^=1"),
        ("id", "id^=1; id=2"),
        ("id", "a=1; id=2"),
        ("id", "a=1, id=2"),
        ("id", ";id=2"),
        ("id", "id^=a=b"),
        ("id", "id"),
        ("id", "id;"),
        ("id", "i=1"),
        ("id", "idd=1"),
        ("id", "ID=1"),
        ("id", "id =1"),
        ("id", ""),
        ("Path", "a=1; Path=/"),
        ("iid", "iiid=1"),
        ("", "=1"),
        ("", "a=1"),
    ];
    for (wanted, value) in rows {
        for field in ["Set-Cookie: ", "set-cookie:", "SET-COOKIE:\t "] {
            let head = format!("HTTP/1.1 200 OK\r\n{field}{value}\r\nContent-Length: 3\r\n\r\nid=");
            check(framing::responses(), wanted, &head);
        }
    }
}

#[test]
fn names_in_more_than_one_field() {
    check(
        framing::requests(),
        "id",
        "GET /id=1;id=2 id=3\r\nCookie: id^=1\r\nCookies: id=2\r\nCooki: id=3\r\nSet-Cookie: id=4\r\n\
         Content-Length: 0\r\nCookie2: id=5\r\nX: ; id=6\r\nCookie: a=1; id^=2\r\n\r\n",
    );
    check(
        framing::responses(),
        "id",
        "HTTP/1.1 103 id=1\r\nSet-Cookie: id^=1\r\n\r\nHTTP/1.1 204 id=1\r\nSet-Cookie: id^=1\r\n\
         Set-Cookies: id=1\r\nSet-Cooki: id=1\r\nCookie: id=1\r\nset-cookie2: id=1\r\nServer: id=1\r\n\
         Set-Cookie: a=1; Path=/\r\nSet-Cookie:id^=2; a\r\n\r\n",
    );
}

#[test]
fn bodies_and_trailers_have_no_cookies() {
    let body = "12\r\n\r\nCookie: id=1\r\n\r\n\r\n\
                12\r\nSet-Cookie: id=1\r\n\r\n0\r\nCookie: id=1\r\nSet-Cookie: id=1\r\n\r\n";
    let request = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nCookie: id^=1\r\n\r\n";
    check(framing::requests(), "id", &format!("{request}{body}"));
    let response = "HTTP/1.1 200 OK\r\nSet-Cookie: id^=1\r\nTransfer-Encoding: chunked\r\n\r\n";
    check(framing::responses(), "id", &format!("{response}{body}"));
    let data = "\r\nCookie: id=1\r\nSet-Cookie: id=1\r\n\r\n";
    let len = data.len();
    check(framing::requests(), "id", &format!("GET\r\nContent-Length: {len}\r\n\r\n{data}"));
    check(framing::responses(), "id", &format!("HTTP/1.1 200\r\nContent-Length: {len}\r\n\r\n{data}"));
}

#[test]
fn a_name_that_was_begun_is_forgotten_with_its_message() {
    let table = framing::requests();
    let mut framing = begin();
    assert_eq!(table.follow(&mut framing, b"GET\r\nCookie: i", false), Followed::More);
    let found = &mut |at| panic!("found at {at}");
    assert_eq!(table.follow_names(&mut framing, b"d", false, b"id", found), Followed::More);
    assert_eq!(table.follow_names(&mut framing, b"\r\n\r\n", false, b"id", found), Followed::Ends(4));
    assert_eq!(framing, Framing::default().with_allowed(u64::MAX));
}

#[test]
fn more_matched_bytes_than_the_name_has_are_another_name() {
    // Possible if the wanted name has become shorter in the meantime.
    let mut framing = Framing::from(sb_framing { state: SB_FRAMING_NAME, matched: 200, ..begin().into() });
    let found = &mut |at| panic!("found at {at}");
    let table = framing::requests();
    assert_eq!(table.follow_names(&mut framing, b"=1\r\n\r\n", false, b"id", found), Followed::Ends(6));
}
