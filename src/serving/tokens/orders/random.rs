//! Pseudorandom numbers, the same in every run.

pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        // Seeds that follow each other begin alike otherwise.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        // Marsaglia's xorshift64.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }

    pub(super) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }

    /// One of several, `None` if there is none.
    pub(super) fn pick<T: Clone>(&mut self, choices: &[T]) -> Option<T> {
        if choices.is_empty() { None } else { choices.get(self.index(choices.len())).cloned() }
    }
}
