//! `[pool.persistence]`: what its keys mean, what is wrong with them, and how a change of them is told.

#[allow(dead_code)] // Another test uses the rest.
mod common;

use std::time::Duration;

use common::{GOOD, changed, good, lines, pooled, read};
use switchback_config::{
    Balance, HashKey, InsertedCookie, Persistence, PersistenceMode, PolicyKind, SameSite,
};

/// The good file with `lines` in `[pool.persistence]`; they begin at line 19.
fn persistent(lines: &str) -> String {
    changed("[[service]]", &format!("[pool.persistence]\n{lines}\n\n[[service]]"))
}

/// What `lines` in `[pool.persistence]` mean.
fn persistence(lines: &str) -> Persistence {
    good(&persistent(lines)).pools[0].persistence.clone().unwrap()
}

/// What `lines` mean besides `mode = "insert"`.
fn inserted(lines: &str) -> InsertedCookie {
    match persistence(&format!("mode = \"insert\"\n{lines}")).mode {
        PersistenceMode::Insert(cookie) => cookie,
        other => panic!("{other:?}"),
    }
}

/// The mistake that the good file has with `lines` in `[pool.persistence]`, without the file.
fn mistake(text: &str) -> String {
    let lines = lines(read(&persistent(text)));
    let [line] = &lines[..] else { panic!("{text}: {lines:?}") };
    line.strip_prefix("etc/cluster.toml:").unwrap().to_owned()
}

/// `key = "value"` becomes an error at it, or none.
fn is_allowed(mode: &str, key: &str, value: &str) -> bool {
    read(&persistent(&format!("mode = \"{mode}\"\n{key} = {value:?}"))).is_ok()
}

#[test]
fn modes_and_their_defaults() {
    let rewrite = |cookie: &str| PersistenceMode::Rewrite { cookie: cookie.into() };
    assert_eq!(
        persistence("mode = \"rewrite\"\ncookie = \"PHPSESSID\""),
        Persistence { mode: rewrite("PHPSESSID"), strict: false }
    );
    let plain = InsertedCookie {
        name: "SB-web".into(),
        path: "/".into(),
        domain: None,
        secure: false,
        http_only: true,
        same_site: None,
        max_age: None,
    };
    assert_eq!(inserted(""), plain);
    assert_eq!(
        persistence(
            "mode = \"insert\"\ncookie = \"Sid\"\nsticky = \"strict\"\npath = \"/shop\"\n\
             domain = \"Shop.example.com\"\nsecure = true\nhttp_only = false\nsame_site = \"lax\"\n\
             max_age = \"1h\""
        ),
        Persistence {
            mode: PersistenceMode::Insert(InsertedCookie {
                name: "Sid".into(),
                path: "/shop".into(),
                domain: Some("shop.example.com".into()),
                secure: true,
                http_only: false,
                same_site: Some(SameSite::Lax),
                max_age: Some(Duration::from_secs(3600)),
            }),
            strict: true,
        }
    );
    let rows = [
        ("client", HashKey::Client),
        ("path", HashKey::Path),
        ("header X-User", HashKey::Header("x-user".into())),
        ("cookie Sid", HashKey::Cookie("Sid".into())),
    ];
    for (text, key) in rows {
        assert_eq!(
            persistence(&format!("mode = \"hash\"\nhash = \"{text}\"\nsticky = \"prefer\"")),
            Persistence { mode: PersistenceMode::Hash(key), strict: false }
        );
    }
}

#[test]
fn what_is_balanced_does_not_depend_on_persistence() {
    for policy in PolicyKind::ALL {
        for table in ["mode = \"hash\", hash = \"path\"", "mode = \"insert\""] {
            let text = format!("policy = \"{policy}\"\nsecond_candidate = true\npersistence = {{ {table} }}");
            let pool = good(&pooled(&text)).pools[0].clone();
            assert_eq!(
                (pool.policy, pool.balance, pool.hash),
                (policy, Balance::Connection, HashKey::Client)
            );
            assert!(pool.persistence.is_some());
        }
    }
}

#[test]
fn attributes_as_in_set_cookie() {
    let rows = [
        ("", "; Path=/; HttpOnly"),
        ("same_site = \"lax\"", "; Path=/; HttpOnly; SameSite=Lax"),
        ("http_only = false", "; Path=/"),
        ("max_age = \"400s\"", "; Path=/; Max-Age=400; HttpOnly"),
        ("secure = true\nsame_site = \"none\"", "; Path=/; Secure; HttpOnly; SameSite=None"),
        (
            "path = \"/a\"\ndomain = \"a.example\"\nmax_age = \"9600h\"\nsecure = true\n\
             same_site = \"strict\"",
            "; Path=/a; Domain=a.example; Max-Age=34560000; Secure; HttpOnly; SameSite=Strict",
        ),
    ];
    for (lines, expected) in rows {
        assert_eq!(inserted(lines).attributes(), expected);
    }
}

/// Lines of `[pool.persistence]`, and what is wrong with them: what comes after `etc/cluster.toml:`.
const BAD: &[(&str, &[&str])] = &[
    ("sticky = \"strict\"", &["18:1: key \"mode\" is missing, a text in quotes is needed"]),
    (
        "mode = \"insert\"\nttl = 1",
        &["20:1: unknown key \"ttl\", allowed: cookie, domain, hash, http_only, max_age, mode, path, \
           same_site, secure, sticky"],
    ),
    (
        "mode = \"insert\"\nsecure = \"yes\"",
        &["20:10: secure is a text, allowed is true or false without quotes"],
    ),
    // An unknown mode hides no other mistake, except whether other keys go with it.
    (
        "mode = \"Insert\"\ncookie = \"\"\nhash = \"x\"\nsticky = \"always\"\npath = \"a\"\ndomain = \".\"\n\
         same_site = \"Lax\"\nmax_age = \"0s\"",
        &[
            "19:8: unknown mode \"Insert\", did you mean \"insert\"?",
            "21:8: bad hash \"x\", allowed: client, path, header NAME, cookie NAME",
            "22:10: unknown sticky \"always\", allowed: prefer, strict",
            "23:8: bad path \"a\", allowed is '/' and then at most 63 visible ASCII without ;",
            "24:10: bad domain \".\", allowed is a host name without a dot before it, and no address",
            "25:13: unknown same_site \"Lax\", did you mean \"lax\"?",
            "26:11: bad max_age \"0s\", allowed is a time from 1s to 9600h such as \"10s\"",
        ],
    ),
    // What a mode needs.
    (
        "mode = \"rewrite\"",
        &["19:8: mode \"rewrite\" without cookie, the name of the cookie that the servers set is needed"],
    ),
    (
        "mode = \"hash\"",
        &["19:8: mode \"hash\" without hash, allowed: client, path, header NAME, cookie NAME"],
    ),
    // Keys of other modes.
    (
        "mode = \"rewrite\"\ncookie = \"PHPSESSID\"\nhash = \"path\"\npath = \"/\"\ndomain = \"a.example\"\n\
         secure = false\nhttp_only = true\nsame_site = \"none\"\nmax_age = \"1h\"",
        &[
            "21:8: hash with mode \"rewrite\", allowed is it only with mode \"hash\"",
            "22:8: path with mode \"rewrite\", allowed is it only with mode \"insert\"",
            "23:10: domain with mode \"rewrite\", allowed is it only with mode \"insert\"",
            "24:10: secure with mode \"rewrite\", allowed is it only with mode \"insert\"",
            "25:13: http_only with mode \"rewrite\", allowed is it only with mode \"insert\"",
            "26:13: same_site with mode \"rewrite\", allowed is it only with mode \"insert\"",
            "27:11: max_age with mode \"rewrite\", allowed is it only with mode \"insert\"",
        ],
    ),
    (
        "mode = \"hash\"\ncookie = \"Sid\"\nhash = \"path\"\npath = \"/\"",
        &[
            "20:10: cookie with mode \"hash\", allowed is it only with mode \"rewrite\" or \"insert\"",
            "22:8: path with mode \"hash\", allowed is it only with mode \"insert\"",
        ],
    ),
    (
        "mode = \"insert\"\nhash = \"path\"",
        &["20:8: hash with mode \"insert\", allowed is it only with mode \"hash\""],
    ),
    // Names of cookies that are rewritten.
    (
        "mode = \"rewrite\"\ncookie = \"sid\"",
        &["20:10: cookie name \"sid\" is too short, its first 8 characters carry where the session is: \
           give the server's session cookie a longer name (for PHP session.name), or use mode \"insert\""],
    ),
    (
        "mode = \"rewrite\"\ncookie = \"__host-sid\"",
        &["20:10: cookie name \"__host-sid\" begins with \"__Host-\", rewriting would take away what \
           browsers guarantee for it, allowed is it only with mode \"insert\""],
    ),
    (
        "mode = \"rewrite\"\ncookie = \"__Secure-sid\"",
        &["20:10: cookie name \"__Secure-sid\" begins with \"__Secure-\", rewriting would take away what \
           browsers guarantee for it, allowed is it only with mode \"insert\""],
    ),
    (
        "mode = \"rewrite\"\ncookie = \"SBSESSION\"",
        &["20:10: cookie name \"SBSESSION\" begins with \"SB\", which marks names that are rewritten, \
           allowed is another beginning"],
    ),
    (
        "mode = \"rewrite\"\ncookie = \"a=b\"",
        &["20:10: bad cookie name \"a=b\", allowed are 8 to 32 letters, digits and !#$%&'*+-.^_`|~"],
    ),
    // Cookies that are inserted.
    (
        "mode = \"insert\"\ncookie = \"\"\nsame_site = \"none\"",
        &[
            "20:10: bad cookie name \"\", allowed are 1 to 32 letters, digits and !#$%&'*+-.^_`|~",
            "21:13: same_site \"none\" without secure, which browsers refuse, allowed is it only with \
             secure = true",
        ],
    ),
    (
        "mode = \"insert\"\ncookie = \"__Secure-a\"\npath = \"/a\"\ndomain = \"a.example\"",
        &["20:10: cookie name \"__Secure-a\" without secure, allowed is it only with secure = true"],
    ),
    (
        "mode = \"insert\"\ncookie = \"__HOST-a\"\npath = \"/a\"\ndomain = \"a.example\"\nsecure = false",
        &[
            "20:10: cookie name \"__HOST-a\" without secure, allowed is it only with secure = true",
            "21:8: path \"/a\" with cookie name \"__HOST-a\", allowed is only \"/\"",
            "22:10: domain with cookie name \"__HOST-a\", leave the line out",
        ],
    ),
    (
        "mode = \"insert\"\nmax_age = \"1500ms\"",
        &["20:11: bad max_age \"1500ms\", allowed are whole seconds"],
    ),
];

#[test]
fn bad_tables() {
    for (text, expected) in BAD {
        let expected: Vec<_> = expected.iter().map(|line| format!("etc/cluster.toml:{line}")).collect();
        assert_eq!(lines(read(&persistent(text))), expected, "{text}");
    }
    let text = pooled("policy = \"\"\npersistence = { mode = \"\" }");
    assert_eq!(
        lines(read(&text))[1],
        "etc/cluster.toml:17:24: unknown mode \"\", allowed: rewrite, insert, hash"
    );
}

#[test]
fn names_of_cookies() {
    let rows = [
        ("PHPSESSI", true, true),
        ("PHPSESS", false, true),
        (&"x".repeat(32), true, true),
        (&"x".repeat(33), false, false),
        ("s", false, true),
        ("", false, false),
        ("sbSESSION", true, true),
        ("Sb-SESSION", true, true),
        ("SB-SESSION", false, true),
        ("XSBSESSION", true, true),
        ("__HostSESSION", true, true),
        ("__Secure_SESSION", true, true),
        ("__Host-SESSION", false, false),
        ("__SECURE-", false, false),
        ("!#$%&'*+-.^_`|~", true, true),
        ("SESSION ID", false, false),
        ("SESSION;ID", false, false),
        ("SESSION,ID", false, false),
        ("SESSION\r\nID", false, false),
        ("SESSION\u{e9}", false, false),
        ("__Host\u{e9}SESSION", false, false),
    ];
    for (name, rewrite, insert) in rows {
        assert_eq!(is_allowed("rewrite", "cookie", name), rewrite, "{name:?}");
        assert_eq!(is_allowed("insert", "cookie", name), insert, "{name:?}");
    }
}

#[test]
fn names_with_a_prefix_can_be_inserted_as_browsers_want_them() {
    for name in ["__Secure-a", "__secure-a", "__Host-a", "__host-a"] {
        assert_eq!(inserted(&format!("cookie = \"{name}\"\nsecure = true\npath = \"/\"")).name, name);
    }
    let secure = inserted("cookie = \"__Secure-a\"\nsecure = true\npath = \"/a\"\ndomain = \"a.example\"");
    assert_eq!((secure.path.as_str(), secure.domain.as_deref()), ("/a", Some("a.example")));
}

#[test]
fn values_of_attributes() {
    let rows = [
        ("path", "/a b", false),
        ("path", "/a;b", false),
        ("path", "/a\tb", false),
        ("path", "/a\r\nb", false),
        ("path", "/\u{e9}", false),
        ("path", "", false),
        ("path", "a/", false),
        ("path", "/a,b=\"~", true),
        ("path", &format!("/{}", "x".repeat(63)), true),
        ("path", &format!("/{}", "x".repeat(64)), false),
        ("domain", "example.com", true),
        ("domain", "my_shop.xn--p1ai", true),
        ("domain", "localhost", true),
        ("domain", "1.example", true),
        ("domain", ".example.com", false),
        ("domain", "example.com.", false),
        ("domain", "*.example.com", false),
        ("domain", "example.com:80", false),
        ("domain", "a;b", false),
        ("domain", "", false),
        ("domain", "192.0.2.1", false),
        ("domain", "192.0.513", false),
        ("domain", "0xc0000201", false),
        ("domain", "2001:db8::1", false),
        ("domain", "[2001:db8::1]", false),
        ("same_site", "strict", true),
        ("same_site", "None", false),
        ("max_age", "1s", true),
        ("max_age", "9600h", true),
        ("max_age", "999ms", false),
        ("max_age", "9600h 1s", false),
        ("max_age", "1s 1ns", false),
        ("max_age", "60", false),
        ("max_age", "-1s", false),
    ];
    for (key, value, allowed) in rows {
        assert_eq!(is_allowed("insert", key, value), allowed, "{key} {value:?}");
    }
}

#[test]
fn the_name_of_the_pool_can_be_too_long_for_a_default() {
    let named = |name: &str, cookie: &str| {
        persistent(&format!("mode = \"insert\"{cookie}")).replace("\"web\"", &format!("\"{name}\""))
    };
    let longest = "x".repeat(29);
    good(&named(&longest, ""));
    let longer = longest + "x";
    assert_eq!(
        lines(read(&named(&longer, ""))),
        [format!(
            "etc/cluster.toml:19:8: cookie name \"SB-{longer}\" (the default) is too long, a name of at most \
             32 characters is needed: cookie = \"...\""
        )]
    );
    good(&named(&longer, "\ncookie = \"sid\""));
}

/// Nodes have room for 255 bytes.
#[test]
fn set_cookie_fits() {
    let text = |domain: &str| {
        let domain = if domain.is_empty() { "".to_owned() } else { format!("\ndomain = \"{domain}\"") };
        format!(
            "mode = \"insert\"\ncookie = \"{}\"\npath = \"/{}\"\nsecure = true\nsame_site = \"strict\"\n\
             max_age = \"9600h\"{domain}",
            "x".repeat(32),
            "x".repeat(63)
        )
    };
    let len = |domain: &str| {
        let PersistenceMode::Insert(cookie) = persistence(&text(domain)).mode else { panic!() };
        format!("Set-Cookie: {}=12345678901234{}\r\n", cookie.name, cookie.attributes()).len()
    };
    // The longest one without a domain needs no check.
    assert_eq!(len(""), 185);
    let domain = format!("{}.example.com", "x".repeat(49));
    assert_eq!(len(&domain), 255);
    assert_eq!(
        mistake(&text(&format!("x{domain}"))),
        "25:10: Set-Cookie with this domain has 256 bytes, allowed are at most 255: shorten domain, path or \
         cookie"
    );
}

/// The good file, in which routes of one service lead to pools with these tables.
fn two_pools(web: &str, img: &str) -> String {
    let img = format!(
        "[[pool]]\nname = \"img\"\nnodes = [\"n1\"]\npolicy = \"random\"\npersistence = {{ {img} }}\n\n\
         [[service]]"
    );
    let text = pooled(&format!("policy = \"random\"\npersistence = {{ {web} }}"));
    text.replace("[[service]]", &img).replace("path = \"/\"\npool = \"web\"", "path = \"/\"\npool = \"img\"")
}

#[test]
fn pools_of_a_service_do_not_insert_the_same_cookie() {
    let insert = |name: &str| format!("mode = \"insert\", cookie = \"{name}\"");
    let rewrite = |name: &str| format!("mode = \"rewrite\", cookie = \"{name}\"");
    let rows = [
        (insert("SESSIONID"), insert("SESSIONID"), false),
        (insert("SESSIONID"), rewrite("SESSIONID"), false),
        (rewrite("SESSIONID"), insert("SESSIONID"), false),
        (rewrite("SESSIONID"), rewrite("SESSIONID"), true),
        (insert("SESSIONID"), insert("sessionid"), true),
        (insert("SESSIONID"), rewrite("sessionid"), true),
        (insert("SESSIONID"), "mode = \"hash\", hash = \"cookie SESSIONID\"".to_owned(), true),
        ("mode = \"insert\"".to_owned(), "mode = \"insert\"".to_owned(), true),
    ];
    for (web, img, allowed) in rows {
        let text = two_pools(&web, &img);
        if allowed {
            good(&text);
            continue;
        }
        assert_eq!(
            lines(read(&text)),
            ["etc/cluster.toml:38:8: pool \"img\" uses cookie \"SESSIONID\" as pool \"web\" does, and \
              service \"shop\" reaches both, allowed is the same name only if both have mode \"rewrite\""]
        );
        // In services of their own they may.
        let own = "[[service]]\nname = \"img\"\nlisten = [\"192.0.2.101:80\"]\n\n[[service.route]]";
        let second = text.rfind("[[service.route]]").unwrap();
        good(&format!("{}{}", &text[..second], text[second..].replace("[[service.route]]", own)));
    }
    let default = two_pools("mode = \"insert\"", &insert("SB-web"));
    assert!(lines(read(&default))[0].contains(":38:8: pool \"img\" uses cookie \"SB-web\""));
}

#[test]
fn a_pool_may_have_many_routes_and_is_named_once() {
    let insert = "mode = \"insert\", cookie = \"sid\"";
    let again = "path = \"/again\"\npool = \"img\"\n\n[[service.route]]\npath = \"/\"\n";
    assert_eq!(lines(read(&two_pools(insert, insert).replace("path = \"/\"\n", again))).len(), 1);
    let same = persistent("mode = \"insert\"");
    assert_eq!(good(&same).services[0].routes.len(), 2);
}

/// A pool that is wrong leaves a hole, and those behind it are compared nevertheless.
#[test]
fn another_mistake_hides_no_cookie_that_two_pools_insert() {
    let insert = "mode = \"insert\", cookie = \"sid\"";
    let wrong = "[[pool]]\nname = \"wrong\"\nnodes = [\"n1\"]\npolicy = \"\"\n\n[[pool]]\nname = \"web\"";
    let text = two_pools(insert, insert).replace("[[pool]]\nname = \"web\"", wrong);
    let lines = lines(read(&text));
    assert!(lines.len() == 2 && lines[1].contains(":43:8: pool \"img\" uses cookie \"sid\""), "{lines:?}");
}

#[test]
fn changes_in_words() {
    let old = good(GOOD);
    let tables = [
        ("mode = \"rewrite\"\ncookie = \"PHPSESSID\"", "rewrite PHPSESSID, sticky prefer"),
        (
            "mode = \"rewrite\"\ncookie = \"PHPSESSID\"\nsticky = \"strict\"",
            "rewrite PHPSESSID, sticky strict",
        ),
        ("mode = \"insert\"", "insert SB-web; Path=/; HttpOnly, sticky prefer"),
        (
            "mode = \"insert\"\ncookie = \"a\"\nsecure = true\nmax_age = \"1h\"\nsame_site = \"none\"",
            "insert a; Path=/; Max-Age=3600; Secure; HttpOnly; SameSite=None, sticky prefer",
        ),
        ("mode = \"hash\"\nhash = \"header X-User\"", "hash header x-user, sticky prefer"),
    ];
    for (table, shown) in tables {
        let new = good(&persistent(table));
        assert_eq!(old.diff(&new), [format!("pool web: persistence (none) -> {shown}")]);
        assert_eq!(new.diff(&old), [format!("pool web: persistence {shown} -> (none)")]);
        assert_eq!(new.diff(&new), [""; 0]);
        assert_eq!(persistence(table).to_string(), shown);
    }
}
