//! Cookie settings of the pools that this machine's nodes are in.

use std::collections::HashMap;

use switchback_config::{Cluster, InsertedCookie, PersistenceMode, Pool};
use switchback_wire::session::{self, Code};
use switchback_wire::{
    SB_NAME_MAX, SB_SET_COOKIE_MAX, keys, sb_key, sb_persistence, sb_pool_here, sb_session_mode,
};

/// Entries of the map `persistence` for the node with this index. While keys rotate, requests may name a pool by the
/// code under either key; new cookies use the first.
pub(crate) fn entries(cluster: &Cluster, node: usize) -> HashMap<sb_pool_here, sb_persistence> {
    let pools: Vec<&Pool> = cluster.cookie_pools().collect();
    let names: Vec<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
    let mut keys = cluster.keys.iter().map(|key| keys::session_key(key.as_bytes()));
    let Some(key) = keys.next() else { return HashMap::new() };
    let codes = session::pool_codes(&key, &names);
    let old_codes = keys.next().map(|old| session::pool_codes(&old, &names));
    let mut entries = HashMap::new();
    let number = cluster.nodes[node].number;
    for (index, pool) in pools.iter().enumerate() {
        let Some(entry) = entry(cluster, pool, node, &key, codes[index]) else { continue };
        for code in [Some(codes[index]), old_codes.as_ref().map(|codes| codes[index])].into_iter().flatten() {
            let code = [code[0], code[1], code[2], 0];
            entries.entry(sb_pool_here { code, node: number, reserved: 0 }).or_insert(entry);
        }
    }
    entries
}

fn entry(
    cluster: &Cluster,
    pool: &Pool,
    node: usize,
    key: &sb_key,
    pool_code: Code,
) -> Option<sb_persistence> {
    let place = pool.nodes.iter().position(|&member| member == node)?;
    let names: Vec<&str> = pool.nodes.iter().map(|&node| cluster.nodes[node].name.as_str()).collect();
    let own = session::node_codes(key, &pool.name, &names)[place];
    let mut entry = sb_persistence {
        mode: 0,
        name_len: 0,
        line_len: 0,
        code: session::rewritten(pool_code, own),
        name: [0; SB_NAME_MAX as usize],
        line: [0; SB_SET_COOKIE_MAX as usize],
    };
    match &pool.persistence.as_ref()?.mode {
        PersistenceMode::Rewrite { cookie } => {
            entry.mode = sb_session_mode::SB_SESSION_REWRITE as u8;
            entry.name_len = cookie.len() as u8;
            entry.name[..cookie.len()].copy_from_slice(cookie.as_bytes());
        }
        PersistenceMode::Insert(cookie) => {
            let line = line(cookie, &session::inserted_value(key, &pool.name, own));
            entry.mode = sb_session_mode::SB_SESSION_INSERT as u8;
            entry.line_len = line.len() as u16;
            entry.line[..line.len()].copy_from_slice(line.as_bytes());
        }
        PersistenceMode::Hash(_) => return None,
    }
    Some(entry)
}

/// The header line; the configuration check has limited its length.
fn line(cookie: &InsertedCookie, value: &[u8]) -> String {
    format!("Set-Cookie: {}={}{}\r\n", cookie.name, String::from_utf8_lossy(value), cookie.attributes())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use switchback_config::ClusterKey;

    use super::*;

    fn cluster(keys: usize) -> Cluster {
        let text = "cluster.key_file = \"cluster.key\"
            [[node]]\nname = \"a\"\naddress = \"192.0.2.1\"
            [[node]]\nname = \"b\"\naddress = \"192.0.2.2\"
            [[pool]]\nname = \"web\"\nnodes = [\"a\", \"b\"]\npolicy = \"random\"
            persistence = { mode = \"rewrite\", cookie = \"PHPSESSID\" }
            [[pool]]\nname = \"img\"\nnodes = [\"b\"]\npolicy = \"random\"
            persistence = { mode = \"insert\", same_site = \"lax\" }
            [[pool]]\nname = \"api\"\nnodes = [\"a\"]\npolicy = \"random\"
            persistence = { mode = \"hash\", hash = \"client\" }
            [[service]]\nname = \"shop\"\nlisten = [\"192.0.2.100:80\"]
            route = [{ path = \"/img/\", pool = \"img\" }, { path = \"/api/\", pool = \"api\" }, { pool = \"web\" }]";
        let keys = (1..=keys).map(|byte| ClusterKey::from_bytes([byte as u8; 32])).collect();
        switchback_config::parse(text, Path::new("cluster.toml"), |_| Ok(keys)).unwrap()
    }

    #[test]
    fn a_node_knows_its_own_pools_and_only_those_with_cookies() {
        let cluster = cluster(1);
        let (a, b) = (entries(&cluster, 0), entries(&cluster, 1));
        assert_eq!((a.len(), b.len()), (1, 2));
        let (key, web) = a.iter().next().unwrap();
        assert_eq!(web.mode, sb_session_mode::SB_SESSION_REWRITE as u8);
        assert_eq!(&web.name[..web.name_len.into()], b"PHPSESSID");
        assert_eq!(([&web.code[2..5], &[0]].concat(), &web.code[..2]), (key.code.to_vec(), &b"SB"[..]));
        assert_ne!(web.code, b[key].code, "each node has a code of its own");
        let img = b.values().find(|entry| entry.mode == sb_session_mode::SB_SESSION_INSERT as u8).unwrap();
        let line = String::from_utf8_lossy(&img.line[..img.line_len.into()]);
        let value = String::from_utf8_lossy(&img.code[5..]);
        assert!(line.starts_with(&format!("Set-Cookie: SB-img={value}")), "{line}");
        assert!(line.ends_with("; Path=/; HttpOnly; SameSite=Lax\r\n"), "{line}");
    }

    #[test]
    fn nodes_of_one_machine_have_codes_of_their_own() {
        let mut cluster = cluster(1);
        (cluster.nodes[0].number, cluster.nodes[1].number) = (0x1234, 0x1235);
        let both: HashMap<_, _> = [0, 1].into_iter().flat_map(|node| entries(&cluster, node)).collect();
        let rewrites =
            both.iter().filter(|(_, entry)| entry.mode == sb_session_mode::SB_SESSION_REWRITE as u8);
        let [(key, first), (other, second)] = rewrites.collect::<Vec<_>>()[..] else { panic!("two nodes") };
        assert_eq!((key.code, key.node ^ other.node), (other.code, 1), "of one pool");
        assert_ne!(first.code, second.code);
    }

    #[test]
    fn while_keys_rotate_a_pool_is_found_by_either_code() {
        let (before, while_) = (entries(&cluster(1), 0), entries(&cluster(2), 0));
        assert_eq!((before.len(), while_.len()), (1, 2));
        let code = before.values().next().unwrap().code;
        assert!(while_.values().all(|entry| entry.code == code), "the first key is in use");
        assert!(before.keys().all(|key| while_.contains_key(key)));
    }
}
