//! Reading whole hash maps, many entries per system call, and replacing what is in them.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsRawFd;

use libbpf_rs::{MapCore, MapFlags};
use nix::errno::Errno;

/// Entries per system call, more than any bucket of a map has.
const BATCH: usize = 4096;

/// Calls `each` with every key and value of a hash map. Entries that come or go meanwhile may be missing.
///
/// The kernel returns whole buckets (`__htab_map_lookup_and_delete_batch()`, kernel/bpf/hashtab.c), so only ENOENT marks the
/// last batch. `MapCore::lookup_batch()` ends at the first that is not full.
pub fn for_each(map: &impl MapCore, mut each: impl FnMut(&[u8], &[u8])) -> io::Result<()> {
    let (key_len, value_len) = (map.key_size() as usize, map.value_size() as usize);
    let (mut keys, mut values) = (vec![0u8; BATCH * key_len], vec![0u8; BATCH * value_len]);
    // Number of the bucket to go on with.
    let mut at = 0u32;
    let mut is_first = true;
    loop {
        let mut count = BATCH as u32;
        let from = if is_first { std::ptr::null_mut() } else { (&raw mut at).cast() };
        // SAFETY: the arrays have room for BATCH entries, and the cursor of a hash map is a u32.
        let result = unsafe {
            libbpf_sys::bpf_map_lookup_batch(
                map.as_fd().as_raw_fd(),
                from,
                (&raw mut at).cast(),
                keys.as_mut_ptr().cast(),
                values.as_mut_ptr().cast(),
                &raw mut count,
                std::ptr::null(),
            )
        };
        let errno = if result == 0 { None } else { Some(Errno::from_raw(-result)) };
        match errno {
            None | Some(Errno::ENOENT) => {}
            Some(Errno::EINTR) => continue,
            Some(errno) => return Err(errno.into()),
        }
        let entries = std::iter::zip(keys.chunks_exact(key_len), values.chunks_exact(value_len));
        entries.take(count as usize).for_each(|(key, value)| each(key, value));
        if errno.is_some() {
            return Ok(());
        }
        is_first = false;
    }
}

/// Kernel memory of a map, in bytes (`bpf_map_show_fdinfo()`, kernel/bpf/syscall.c).
pub fn memory(map: &impl MapCore) -> io::Result<u64> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", map.as_fd().as_raw_fd()))?;
    let line = info.lines().find_map(|line| line.strip_prefix("memlock:"));
    line.and_then(|bytes| bytes.trim().parse().ok()).ok_or_else(|| io::Error::other("not a BPF map"))
}

/// Writes these entries, and then removes all others.
pub fn replace(map: &impl MapCore, wanted: &HashMap<Vec<u8>, Vec<u8>>) -> libbpf_rs::Result<()> {
    for (key, value) in wanted {
        map.update(key, value, MapFlags::ANY)?;
    }
    let gone: Vec<Vec<u8>> = map.keys().filter(|key| !wanted.contains_key(key)).collect();
    gone.iter().try_for_each(|key| map.delete(key))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use libbpf_rs::{MapHandle, MapType};

    use super::*;

    #[test]
    fn every_entry_is_read_once() {
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let map = MapHandle::create(MapType::Hash, Some("entries"), 4, 8, 65_536, &options).unwrap();
        for count in [0u32, 1, 50_000] {
            for key in 0..count {
                let value = u64::from(key).to_ne_bytes();
                map.update(&key.to_ne_bytes(), &value, MapFlags::ANY).unwrap();
            }
            let mut read = HashSet::new();
            for_each(&map, |key, value| {
                let key = u32::from_ne_bytes(key.try_into().unwrap());
                assert_eq!(value, u64::from(key).to_ne_bytes());
                assert!(read.insert(key), "{key} twice");
            })
            .unwrap();
            assert_eq!(read.len(), count as usize);
        }
    }
}
