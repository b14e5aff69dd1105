//! Whose connection it is, as far as its address tells.

use std::net::{IpAddr, Ipv6Addr};

/// Everything that one caller can call from, as a rule: an IPv4 address, or an IPv6 network of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer(IpAddr);

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        // A socket for both families shows an IPv4 address as `::ffff:a.b.c.d`.
        Self(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address @ IpAddr::V4(_) => address,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn peer(number: u8) -> Peer {
        IpAddr::from([10, 0, 0, number]).into()
    }

    #[test]
    fn addresses_of_one_caller_are_one_peer() {
        for (one, other, same) in [
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("10.0.0.1", "::ffff:10.0.0.1", true),
            ("::ffff:10.0.0.1", "::ffff:10.0.0.2", false),
            ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", true),
            ("2001:db8:0:1::1", "2001:db8:0:2::1", false),
            ("::1", "127.0.0.1", false),
        ] {
            let peer = |address: &str| Peer::from(address.parse::<IpAddr>().unwrap());
            assert_eq!(peer(one) == peer(other), same, "{one} {other}");
        }
    }
}
