//! A bounded cache of compiled programs that evicts entries not used recently.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// A map whose values have a bounded total weight.
///
/// Eviction is second-chance (CLOCK): the oldest entry is evicted, unless it was used since it was
/// last at the front; in that case it moves to the back once. Eviction needs no search.
pub(crate) struct Cache<K, V> {
    max_weight: usize,
    state: Mutex<CacheState<K, V>>,
}
struct CacheState<K, V> {
    /// The values, with their weights.
    entries: FxHashMap<Arc<K>, CacheEntry<V>>,
    /// All keys, in eviction order.
    order: VecDeque<Arc<K>>,
    weight: usize,
}
struct CacheEntry<V> {
    value: V,
    weight: usize,
    /// True if the entry was used since it was inserted or last moved to the back.
    used: bool,
}

impl<K: Hash + Eq, V: Clone> Cache<K, V> {
    /// Creates an empty cache for values of total weight at most `max_weight`.
    pub(crate) fn new(max_weight: usize) -> Cache<K, V> {
        let state = CacheState { entries: FxHashMap::default(), order: VecDeque::new(), weight: 0 };
        Cache { max_weight, state: Mutex::new(state) }
    }
    /// Returns the value of this key, and marks it as used.
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = state.entries.get_mut(key)?;
        entry.used = true;
        Some(entry.value.clone())
    }
    /// Inserts a value, and evicts others as needed. If another thread has inserted a value for the
    /// key meanwhile, that value is kept and returned.
    pub(crate) fn put(&self, key: K, value: V, weight: usize) -> V {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        if let Some(known) = state.entries.get(&key) {
            return known.value.clone();
        }
        // an entry heavier than the limit is kept until the next insertion
        while state.weight + weight > self.max_weight
            && let Some(oldest) = state.order.pop_front()
        {
            match state.entries.get_mut(&oldest) {
                Some(entry) if entry.used => {
                    entry.used = false;
                    state.order.push_back(oldest);
                }
                _ => state.weight -= state.entries.remove(&oldest).map_or(0, |e| e.weight),
            }
        }
        let key = Arc::new(key);
        state.order.push_back(key.clone());
        state.entries.insert(key, CacheEntry { value: value.clone(), weight, used: false });
        state.weight += weight;
        value
    }
}

#[cfg(test)]
mod tests {
    use super::Cache;

    #[test]
    fn what_was_not_used_goes_first() {
        let cache = Cache::new(3);
        for k in 0..3 {
            cache.put(k, 10 * k, 1);
        }
        assert_eq!(cache.get(&0), Some(0));
        cache.put(3, 30, 1);
        assert_eq!(cache.get(&1), None);
        assert!([0, 2, 3].iter().all(|k| cache.get(k).is_some()));
    }

    #[test]
    fn what_is_heavy_displaces_many() {
        let cache = Cache::new(4);
        for k in 0..4 {
            cache.put(k, k, 1);
        }
        cache.put(4, 4, 3);
        assert_eq!((0..5).filter(|k| cache.get(k).is_some()).collect::<Vec<_>>(), [3, 4]);
        // an entry that is too heavy is kept until the next insertion
        cache.put(5, 5, 9);
        assert_eq!(cache.get(&5), Some(5));
        cache.put(6, 6, 1);
        assert_eq!((0..7).filter(|k| cache.get(k).is_some()).collect::<Vec<_>>(), [6]);
    }

    #[test]
    fn what_is_there_stays() {
        let cache = Cache::new(2);
        cache.put("a", 1, 1);
        assert_eq!(cache.put("a", 2, 1), 1);
        cache.put("b", 3, 1);
        assert_eq!(cache.get(&"a"), Some(1));
    }

    #[test]
    fn what_is_used_again_and_again_stays_among_many() {
        let cache = Cache::new(100);
        for k in 0..100_000 {
            cache.put(k, k, 1);
            assert!(k < 7 || cache.get(&7) == Some(7), "{k}");
        }
        let kept = cache.state.lock().unwrap();
        assert_eq!((kept.entries.len(), kept.order.len(), kept.weight), (100, 100, 100));
    }
}
