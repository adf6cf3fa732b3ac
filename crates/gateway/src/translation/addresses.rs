//! Addresses of Gateways.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use gateway_api::apis::standard::gateways::Gateway;
use ipnet::IpNet;

use super::conditions::Said;
use crate::objects::Place;

/// Addresses of Gateways.
pub type Assigned = BTreeMap<Place, Vec<IpAddr>>;

/// Type of an address.
pub(super) const IP_ADDRESS: &str = "IPAddress";

/// The addresses of each Gateway, or why it has none: those that it wants, those that it has, or free ones, one of each IP
/// version. All are in `ranges`. What an older Gateway has cannot be taken. `assigned` is what was assigned before, which
/// statuses say later.
pub(super) fn assign(
    gateways: &[Arc<Gateway>],
    ranges: &[IpNet],
    assigned: &Assigned,
) -> Vec<Result<Vec<IpAddr>, Said>> {
    let mut taken = BTreeSet::new();
    let wanted: Vec<Option<Result<Vec<IpAddr>, Said>>> =
        gateways.iter().map(|gateway| wanted(gateway, ranges, &mut taken)).collect();
    let versions = |is_ipv4: bool| {
        let of = ranges.iter().filter(move |range| range.addr().is_ipv4() == is_ipv4);
        of.flat_map(IpNet::hosts)
    };
    let free = |is_ipv4: bool, taken: &mut BTreeSet<IpAddr>| {
        let address = versions(is_ipv4).find(|address| !taken.contains(address))?;
        taken.insert(address);
        Some(address)
    };
    // New Gateways leave the addresses of all others to them.
    let kept: Vec<Vec<IpAddr>> = std::iter::zip(gateways, &wanted)
        .map(|(gateway, wanted)| match wanted {
            Some(_) => Vec::new(),
            None => kept(gateway, ranges, assigned, &mut taken),
        })
        .collect();
    let assigned = std::iter::zip(wanted, kept).map(|(wanted, mut addresses)| {
        if let Some(wanted) = wanted {
            return wanted;
        }
        for is_ipv4 in [true, false] {
            if !addresses.iter().any(|address| address.is_ipv4() == is_ipv4) {
                addresses.extend(free(is_ipv4, &mut taken));
            }
        }
        addresses.sort_unstable();
        match addresses.is_empty() {
            false => Ok(addresses),
            true => {
                let what = "all addresses of the controller (--addresses) are in use";
                Err(Said::no("Programmed", "AddressNotAssigned", what))
            }
        }
    });
    assigned.collect()
}

/// The addresses that a Gateway demands; None if it demands none.
fn wanted(
    gateway: &Gateway,
    ranges: &[IpNet],
    taken: &mut BTreeSet<IpAddr>,
) -> Option<Result<Vec<IpAddr>, Said>> {
    let demands = gateway.spec.addresses.iter().flatten();
    let mut addresses = Vec::new();
    for demand in demands {
        if demand.r#type.as_deref().is_some_and(|kind| kind != IP_ADDRESS) {
            let what = format!(
                "addresses of type {} are not supported",
                demand.r#type.as_deref().unwrap_or_default()
            );
            return Some(Err(Said::no("Accepted", "UnsupportedAddress", what)));
        }
        let Some(value) = demand.value.as_deref().filter(|value| !value.is_empty()) else { continue };
        let unusable = |what: String| Some(Err(Said::no("Programmed", "AddressNotUsable", what)));
        let Ok(address) = value.parse::<IpAddr>() else {
            return unusable(format!("{value} is no address"));
        };
        if !ranges.iter().any(|range| range.contains(&address)) {
            return unusable(format!("{value} is none of the controller's addresses (--addresses)"));
        }
        if taken.contains(&address) {
            return unusable(format!("another Gateway has {value}"));
        }
        addresses.push(address);
    }
    taken.extend(&addresses);
    (!addresses.is_empty()).then_some(Ok(addresses))
}

/// The addresses that were assigned to it, or else that its status says, of each IP version one.
fn kept(
    gateway: &Gateway,
    ranges: &[IpNet],
    assigned: &Assigned,
    taken: &mut BTreeSet<IpAddr>,
) -> Vec<IpAddr> {
    let said = gateway.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let said = said.filter_map(|said| said.value.parse::<IpAddr>().ok());
    let assigned = assigned.get(&Place::of(gateway)).into_iter().flatten().copied();
    let mut kept: Vec<IpAddr> = Vec::new();
    for address in assigned.chain(said) {
        let is_ours = ranges.iter().any(|range| range.contains(&address));
        let is_second = kept.iter().any(|other| other.is_ipv4() == address.is_ipv4());
        if is_ours && !is_second && taken.insert(address) {
            kept.push(address);
        }
    }
    kept
}
