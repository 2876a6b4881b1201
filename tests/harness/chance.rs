//! Pseudo-random numbers from a seed.

/// A SplitMix64 generator: every seed is good, and the state is one number.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    pub fn of_seed(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    pub fn one_of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.between(0, choices.len() as u64 - 1) as usize]
    }

    /// Returns the items in random order.
    pub fn shuffled<T: Clone>(&mut self, items: &[T]) -> Vec<T> {
        let mut items = items.to_vec();
        for last in (1..items.len()).rev() {
            items.swap(last, self.between(0, last as u64) as usize);
        }
        items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_the_numbers_and_each_choice_occurs() {
        let numbers = |seed| {
            let mut chance = Chance::of_seed(seed);
            (0..100).map(|_| chance.between(3, 7)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
        assert!((3..=7).all(|number| numbers(1).contains(&number)), "{:?}", numbers(1));
        let mut shuffled = Chance::of_seed(5).shuffled(&[1, 2, 3, 4, 5]);
        shuffled.sort_unstable();
        assert_eq!(shuffled, [1, 2, 3, 4, 5]);
    }
}
