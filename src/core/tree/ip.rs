//! Ids of the `ip` scheme: an address, or a network as address and bits.
//!
//! *Owns* their syntax and the match. Reproduces `IPAuthenticationProvider`, whose parser takes
//! neither IPv4-mapped tails nor zones, and a `::` only where it stands for two groups or more.

/// The permission bits that networks have, for finding those of an address at once.
#[derive(Debug)]
pub(super) struct Networks {
    /// By family, bits of the network, and its prefix; sorted, each once.
    perms: Box<[(Key, i32)]>,
}

type Key = (u32, u32, u128);

impl Networks {
    /// Networks and the bits that each has. Text that is none has no address in it.
    pub(super) fn new<'a>(given: impl Iterator<Item = (&'a str, i32)>) -> Self {
        let mut perms: Vec<(Key, i32)> = given
            .filter_map(|(text, perms)| Some((IpNetwork::parse(text)?.key(), perms)))
            .collect();
        perms.sort_unstable();
        perms.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 |= if same { next.1 } else { 0 };
            same
        });
        Self { perms: perms.into_boxed_slice() }
    }

    /// The bits of all networks that the address in `id` is in. Costs one search for every length
    /// of a prefix that there is, not one step for every network.
    pub(super) fn perms_of(&self, id: &str) -> i32 {
        if self.perms.is_empty() {
            return 0;
        }
        let Some(address) = IpNetwork::parse(id) else { return 0 };
        let mut found = 0;
        let mut at = self.lower_bound((address.width, 0, 0));
        while let Some(&((width, bits, _), _)) = self.perms.get(at)
            && width == address.width
        {
            let key = IpNetwork { bits, ..address }.key();
            if let Ok(position) = self.perms.binary_search_by(|(other, _)| other.cmp(&key)) {
                found |= self.perms[position].1;
            }
            at = self.lower_bound((width, bits + 1, 0));
        }
        found
    }

    fn lower_bound(&self, key: Key) -> usize {
        self.perms.partition_point(|(other, _)| *other < key)
    }
}

/// An address or network, reduced to what a match compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IpNetwork {
    /// Bits of the family: 32 or 128.
    width: u32,
    bits: u32,
    address: u128,
}

impl IpNetwork {
    /// `None` when the text is no address.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            None => (text, None),
            Some((address, bits)) => (address, Some(bits)),
        };
        let (width, address) = if address.contains(':') {
            (128, parse_v6(address)?)
        } else {
            (32, parse_v4(address)?)
        };
        let bits = match bits {
            None => width,
            Some(bits) => java_int(bits, 10).and_then(|bits| u32::try_from(bits).ok())?,
        };
        (bits <= width).then_some(Self { width, bits, address })
    }

    /// What two networks are equal by: bits of the address behind the mask do not count.
    fn key(self) -> Key {
        // Shifting away all 128 bits is no shift to the processor.
        let prefix = if self.bits == 0 { 0 } else { self.address >> (self.width - self.bits) };
        (self.width, self.bits, prefix)
    }
}

fn parse_v4(text: &str) -> Option<u128> {
    let mut parts = text.split('.');
    let mut address = 0;
    for _ in 0..4 {
        let part = java_int(parts.next()?, 10)?;
        address = address << 8 | u128::from(u8::try_from(part).ok()?);
    }
    parts.next().is_none().then_some(address)
}

fn parse_v6(text: &str) -> Option<u128> {
    match text.split_once("::") {
        None => {
            let (groups, count) = parse_groups(text)?;
            (count == V6_GROUPS).then_some(groups)
        }
        Some((front, back)) if !back.contains("::") => {
            let (front, front_count) = parse_groups(front)?;
            let (back, back_count) = parse_groups(back)?;
            if front_count + back_count >= V6_GROUPS {
                return None;
            }
            let front =
                if front_count == 0 { 0 } else { front << (16 * (V6_GROUPS - front_count)) };
            Some(front | back)
        }
        Some(_) => None,
    }
}

const V6_GROUPS: usize = 8;

/// Groups between colons, and how many they are.
fn parse_groups(text: &str) -> Option<(u128, usize)> {
    if text.is_empty() {
        return Some((0, 0));
    }
    let mut groups = 0;
    let mut count = 0;
    for group in text.split(':') {
        if group.len() > 4 || count == V6_GROUPS {
            return None;
        }
        // Java would take "-1" for a group, and cut it to 16 bits; an address it is not.
        groups = groups << 16 | u128::from(u16::try_from(java_int(group, 16)?).ok()?);
        count += 1;
    }
    Some((groups, count))
}

/// `Integer.parseInt` for numbers that are not negative: leading zeros and a plus are fine.
fn java_int(text: &str, radix: u32) -> Option<i32> {
    i32::from_str_radix(text, radix).ok().filter(|number| *number >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(network: &str, id: &str) -> bool {
        Networks::new([(network, 1)].into_iter()).perms_of(id) == 1
    }

    #[test]
    fn addresses_and_networks_that_zookeeper_takes() {
        for text in [
            "127.0.0.1",
            "10.0.0.0/8",
            "0.0.0.0/0",
            "1.2.3.4/32",
            "::",
            "::1",
            "fe80::/10",
            "1::/128",
            "1:2:3:4:5:6:7:8",
            "::/0",
        ] {
            assert!(IpNetwork::parse(text).is_some(), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_address_is_refused() {
        for text in [
            "",
            "1.2.3",
            "1.2.3.4.5",
            "1.2.3.256",
            "1.2.3.4/33",
            "1.2.3.4/-1",
            "1.2.3.4/",
            "a.b.c.d",
            "::1/129",
            "1::2::3",
            ":::",
            "1:2:3:4:5:6:7",
            "1:2:3:4:5:6:7::8",
            "12345::",
            "g::",
            "::ffff:1.2.3.4",
            "localhost",
            "1.2.3.4/8/8",
        ] {
            assert!(IpNetwork::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_match_compares_the_masked_prefix_within_one_family() {
        assert!(matches("10.0.0.0/8", "10.255.1.2"));
        assert!(!matches("10.0.0.0/8", "11.0.0.1"));
        assert!(matches("10.9.9.9/8", "10.0.0.1"), "bits behind the mask are ignored");
        assert!(matches("0.0.0.0/0", "1.2.3.4"));
        assert!(!matches("0.0.0.0/0", "::1"));
        assert!(matches("::/0", "fe80::1"));
        assert!(!matches("::/0", "1.2.3.4"));
        assert!(matches("fe80::/10", "febf:0:0:0:0:0:0:1"));
        assert!(!matches("fe80::/10", "fec0::1"));
        assert!(matches("::1", "0:0:0:0:0:0:0:1"));
        assert!(!matches("1.2.3.4", "1.2.3.5"));
    }

    #[test]
    fn an_address_has_the_bits_of_every_network_that_it_is_in_and_of_no_other() {
        let networks = Networks::new(
            [
                ("10.1.2.3", 1),
                ("10.1.9.9/16", 2),
                ("10.1.0.0/16", 4),
                ("10.0.0.0/8", 8),
                ("10.2.0.0/16", 16),
                ("0.0.0.0/0", 32),
                ("::/0", 64),
                ("no address", 128),
            ]
            .into_iter(),
        );
        for (address, perms) in
            [("10.1.2.3", 47), ("10.1.2.4", 46), ("10.2.2.3", 56), ("9.9.9.9", 32), ("::1", 64)]
        {
            assert_eq!(networks.perms_of(address), perms, "{address}");
        }
        assert_eq!(networks.perms_of("no address"), 0);
    }
}
