//! Changes to the elements of a certificate, by numbers that are the same in each run.

use super::values::{TAGS, VALUES};

/// Numbers that are the same in each run.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        // The generator splitmix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).expect("a few")).expect("a few")
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    pub(super) fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

/// What an element holds.
#[derive(Debug, Clone)]
enum Contents {
    Octets(Vec<u8>),
    /// What comes before the elements, such as a bit string's first octet, and those.
    Elements(Vec<u8>, Vec<Node>),
}

/// An element of DER that can be changed.
#[derive(Debug, Clone)]
pub(super) struct Node {
    tag: u8,
    contents: Contents,
    /// Octets that its length takes beyond the fewest.
    excess: usize,
}

impl Node {
    /// All elements of a text that is nothing else.
    pub(super) fn read_all(mut der: &[u8]) -> Option<Vec<Self>> {
        let mut nodes = Vec::new();
        while !der.is_empty() {
            let (&[tag, first], rest) = der.split_first_chunk::<2>()?;
            let octets = if first < 0x80 { 0 } else { usize::from(first & 0x7f) };
            let (digits, rest) = rest.split_at_checked(octets)?;
            let length = digits.iter().fold(0_usize, |length, it| length << 8 | usize::from(*it));
            let length = if octets == 0 { usize::from(first) } else { length };
            let (contents, after) = rest.split_at_checked(length)?;
            if tag & 0x1f == 0x1f {
                return None;
            }
            nodes.push(Self { tag, contents: Contents::read(tag, contents), excess: 0 });
            der = after;
        }
        Some(nodes)
    }

    pub(super) fn write(&self, der: &mut Vec<u8>) {
        let mut contents = Vec::new();
        match &self.contents {
            Contents::Octets(octets) => contents.extend(octets),
            Contents::Elements(before, nodes) => {
                contents.extend(before);
                for node in nodes {
                    node.write(&mut contents);
                }
            }
        }
        der.push(self.tag);
        let length = contents.len().to_be_bytes();
        let zeros = length.iter().take_while(|it| **it == 0).count();
        if contents.len() < 0x80 && self.excess == 0 {
            der.extend(&length[7..]);
        } else {
            let digits = &length[zeros.min(7).saturating_sub(self.excess)..];
            der.push(0x80 | u8::try_from(digits.len()).expect("eight at most"));
            der.extend(digits);
        }
        der.extend(contents);
    }

    /// How many elements there are, with itself.
    pub(super) fn count(&self) -> usize {
        1 + match &self.contents {
            Contents::Octets(_) => 0,
            Contents::Elements(_, nodes) => nodes.iter().map(Self::count).sum(),
        }
    }

    /// The element of this number.
    pub(super) fn nth(&mut self, mut number: usize) -> &mut Self {
        if number == 0 {
            return self;
        }
        number -= 1;
        if let Contents::Elements(_, nodes) = &mut self.contents {
            for node in nodes {
                let count = node.count();
                if number < count {
                    return node.nth(number);
                }
                number -= count;
            }
        }
        panic!("there are not so many elements")
    }

    pub(super) fn change(&mut self, random: &mut Random) {
        let kind = random.below(10);
        match &mut self.contents {
            _ if kind == 0 => self.tag = TAGS[random.below(TAGS.len())],
            _ if kind == 1 && random.below(4) == 0 => self.excess = 1 + random.below(2),
            _ if kind == 2 => {
                let mut octets = Vec::new();
                for _ in 0..random.below(12) {
                    octets.push(random.byte());
                }
                self.contents = Contents::Octets(octets);
            }
            Contents::Elements(_, nodes) if !nodes.is_empty() => {
                let (one, other) = (random.below(nodes.len()), random.below(nodes.len()));
                match kind {
                    3 | 4 => drop(nodes.remove(one)),
                    5 | 6 => nodes.insert(other, nodes[one].clone()),
                    7 => nodes.swap(one, other),
                    8 => self.contents = Contents::Octets(Vec::new()),
                    _ => {
                        let octets = random.one(VALUES).to_vec();
                        let tag = TAGS[random.below(TAGS.len())];
                        let contents = Contents::Octets(octets);
                        nodes.insert(other, Self { tag, contents, excess: 0 });
                    }
                }
            }
            Contents::Elements(..) => {
                self.contents = Contents::Octets(random.one(VALUES).to_vec());
            }
            Contents::Octets(octets) => match kind {
                3 | 4 => *octets = random.one(VALUES).to_vec(),
                5 if !octets.is_empty() => drop(octets.remove(random.below(octets.len()))),
                6 => octets.insert(random.below(octets.len() + 1), random.byte()),
                7 if !octets.is_empty() => {
                    let at = random.below(octets.len());
                    octets[at] = random.byte();
                }
                8 if !octets.is_empty() => {
                    let at = random.below(octets.len());
                    let value = random.one(VALUES);
                    octets.splice(at..at, value.iter().copied());
                }
                _ => {
                    let mut shortened = random.one(VALUES).to_vec();
                    shortened.truncate(random.below(shortened.len() + 1));
                    *octets = shortened;
                }
            },
        }
    }
}

impl Contents {
    fn read(tag: u8, contents: &[u8]) -> Self {
        let is_constructed = tag & 0x20 != 0;
        let before = usize::from(tag == 3);
        // A key or an extension's value holds elements as well, in octets of a string.
        if is_constructed || tag == 4 || tag == 3 {
            let (before, rest) = contents.split_at(before.min(contents.len()));
            if let Some(nodes) = Node::read_all(rest).filter(|it| is_constructed || !it.is_empty())
            {
                return Self::Elements(before.to_vec(), nodes);
            }
        }
        Self::Octets(contents.to_vec())
    }
}
