//! DER elements as Go reads them (`golang.org/x/crypto/cryptobyte`, X.690 sections 8 and 10).

/// Unread input. After a failed read its position is unspecified.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

pub(super) const BOOLEAN: u8 = 0x01;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;

/// A primitive element with a context-specific tag.
pub(super) const fn context(number: u8) -> u8 {
    0x80 | number
}

/// A constructed element with a context-specific tag.
pub(super) const fn constructed(number: u8) -> u8 {
    0xa0 | number
}

/// An element: its tag, its contents, and all of it.
pub(super) struct DerElement<'a> {
    pub(super) tag: u8,
    pub(super) contents: &'a [u8],
    pub(super) whole: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The next element (`String.readASN1`): one octet of tag, the shortest length in at most four.
    pub(super) fn any(&mut self) -> Option<DerElement<'a>> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (length, head) = if first & 0x80 == 0 {
            (usize::from(first), 2)
        } else {
            let octets = usize::from(first & 0x7f);
            let digits = rest.get(..octets).filter(|_| (1..=4).contains(&octets))?;
            let length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
            if length < 0x80 || digits[0] == 0 {
                return None;
            }
            (length, 2 + octets)
        };
        let whole = self.0.get(..head.checked_add(length)?)?;
        self.0 = &self.0[whole.len()..];
        Some(DerElement { tag, contents: &whole[head..], whole })
    }

    /// The contents of the next element, which has this tag.
    pub(super) fn read(&mut self, tag: u8) -> Option<Self> {
        self.any().filter(|element| element.tag == tag).map(|element| Self(element.contents))
    }

    /// Checks the next element, which has this tag, one contained element after another: each check reads one.
    pub(super) fn each(
        &mut self,
        tag: u8,
        mut check: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        let mut list = self.read(tag)?;
        while !list.is_empty() {
            check(&mut list)?;
        }
        Some(())
    }

    pub(super) fn is_next(self, tag: u8) -> bool {
        self.0.first() == Some(&tag)
    }

    /// The contents of the next element if it has this tag, none where another one is next; `None` if it is broken.
    pub(super) fn optional(&mut self, tag: u8) -> Option<Self> {
        if self.is_next(tag) { self.read(tag) } else { Some(Self(&[])) }
    }

    /// An object identifier's numbers (`ReadASN1ObjectIdentifier`): each in the fewest octets, and below 2^31.
    pub(super) fn object_identifier(&mut self) -> Option<Vec<u32>> {
        object_identifier(self.read(OBJECT_IDENTIFIER)?.0)
    }

    pub(super) fn boolean(&mut self) -> Option<bool> {
        match self.read(BOOLEAN)?.0 {
            [0] => Some(false),
            [0xff] => Some(true),
            _ => None,
        }
    }

    /// An integer's octets, the fewest that hold it (`checkASN1Integer`).
    pub(super) fn integer(&mut self, tag: u8) -> Option<&'a [u8]> {
        let octets = self.read(tag)?.0;
        match octets {
            [] | [0, 0..=0x7f, ..] | [0xff, 0x80..=0xff, ..] => None,
            _ => Some(octets),
        }
    }

    /// An integer that 64 bits hold with its sign (`asn1Signed`).
    pub(super) fn integer_64(&mut self, tag: u8) -> Option<i64> {
        let octets = self.integer(tag).filter(|octets| octets.len() <= 8)?;
        let sign = if octets[0] & 0x80 == 0 { 0 } else { -1 };
        Some(octets.iter().fold(sign, |value, octet| value << 8 | i64::from(*octet)))
    }

    /// An integer above zero, as octets.
    pub(super) fn positive(&mut self) -> Option<&'a [u8]> {
        self.integer(INTEGER).filter(|octets| octets[0] & 0x80 == 0 && *octets != [0])
    }

    /// A bit string (`ReadASN1BitString`): the number of unused bits at its end, and its octets.
    pub(super) fn bit_string(&mut self) -> Option<(u8, &'a [u8])> {
        let (&unused, octets) = self.read(BIT_STRING)?.0.split_first()?;
        let is_clear = match octets.last() {
            Some(last) => unused <= 7 && last & ((1_u8 << unused) - 1) == 0,
            None => unused == 0,
        };
        is_clear.then_some((unused, octets))
    }
}

fn object_identifier(octets: &[u8]) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    let mut rest = octets;
    while !rest.is_empty() {
        let length = rest.iter().position(|octet| octet & 0x80 == 0)? + 1;
        let (number, after) = rest.split_at(length);
        if length > 5 || number[0] == 0x80 {
            return None;
        }
        let value = number.iter().fold(0_u64, |value, octet| value << 7 | u64::from(octet & 0x7f));
        let value = u32::try_from(value).ok().filter(|value| value >> 31 == 0)?;
        if numbers.is_empty() {
            let first = (value / 40).min(2);
            numbers.extend([first, value - 40 * first]);
        } else {
            numbers.push(value);
        }
        rest = after;
    }
    (!numbers.is_empty()).then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_the_shortest_and_within_what_is_left() {
        let read = |der: &[u8]| Reader(der).any().map(|element| element.contents.len());
        let long = |head: &[u8], length: usize| [head, &vec![0; length]].concat();
        assert_eq!(read(&[4, 0]), Some(0));
        assert_eq!(read(&long(&[4, 0x7f], 127)), Some(127));
        assert_eq!(read(&long(&[4, 0x81, 0x80], 128)), Some(128));
        assert_eq!(read(&long(&[4, 0x82, 1, 0], 256)), Some(256));
        for broken in [&[4][..], &[4, 1], &[0x1f, 0], &[4, 0x80], &[4, 0x85, 0, 0, 0, 0, 1]] {
            assert_eq!(read(broken), None, "{broken:?}");
        }
        assert_eq!(read(&long(&[4, 0x81, 0x7f], 127)), None);
        assert_eq!(read(&long(&[4, 0x82, 0, 0x80], 128)), None);
        assert_eq!(read(&[4, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }

    #[test]
    fn numbers_are_the_shortest() {
        let integer = |octets: &[u8]| {
            let length = u8::try_from(octets.len()).unwrap();
            Reader(&[&[INTEGER, length], octets].concat()).integer_64(INTEGER)
        };
        assert_eq!(integer(&[0]), Some(0));
        assert_eq!(integer(&[0, 0x80]), Some(128));
        assert_eq!(integer(&[0xff]), Some(-1));
        assert_eq!(integer(&[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), Some(i64::MAX));
        for broken in [&[][..], &[0, 0x7f], &[0xff, 0x80], &[0, 0xff, 0, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(integer(broken), None, "{broken:?}");
        }
        assert_eq!(object_identifier(&[0x55, 0x1d, 0x11]), Some(vec![2, 5, 29, 17]));
        assert_eq!(object_identifier(&[0x88, 0x37]), Some(vec![2, 999]));
        assert_eq!(
            object_identifier(&[42, 0x87, 0xff, 0xff, 0xff, 0x7f]).map(|it| it.len()),
            Some(3)
        );
        for broken in [&[][..], &[0x80, 1], &[42, 0x80], &[42, 0x88, 0x80, 0x80, 0x80, 0]] {
            assert_eq!(object_identifier(broken), None, "{broken:?}");
        }
    }
}
