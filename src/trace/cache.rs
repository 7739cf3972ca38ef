//! What was compiled, kept to be found again: the least recently used goes first.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// Values by key, of a bounded weight in all.
pub(super) struct Cache<K, V> {
    most: usize,
    state: Mutex<State<K, V>>,
}
struct State<K, V> {
    entries: HashMap<K, Entry<V>>,
    weight: usize,
    clock: u64,
}
struct Entry<V> {
    value: Arc<V>,
    weight: usize,
    used: u64,
}

impl<K: Hash + Eq + Clone, V> Cache<K, V> {
    /// An empty one, for values that weigh at most this much together.
    pub(super) fn new(most: usize) -> Cache<K, V> {
        Cache { most, state: Mutex::new(State { entries: HashMap::new(), weight: 0, clock: 0 }) }
    }
    /// The value of this key, which was used now.
    pub(super) fn get(&self, key: &K) -> Option<Arc<V>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.clock += 1;
        let now = state.clock;
        let entry = state.entries.get_mut(key)?;
        entry.used = now;
        Some(entry.value.clone())
    }
    /// Keeps a value, and lets go of others. One that another thread has put there meanwhile stays.
    pub(super) fn put(&self, key: K, value: V, weight: usize) -> Arc<V> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        state.clock += 1;
        let used = state.clock;
        let entry = state.entries.entry(key).or_insert_with(|| {
            state.weight += weight;
            Entry { value: Arc::new(value), weight, used }
        });
        let value = entry.value.clone();
        // a search through all is little beside the compilation that came before it; the one just put is the last to go
        while state.weight > self.most && state.entries.len() > 1 {
            let Some(oldest) = state.entries.iter().min_by_key(|e| e.1.used).map(|e| e.0.clone()) else {
                break;
            };
            state.weight -= state.entries.remove(&oldest).map_or(0, |e| e.weight);
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::Cache;

    #[test]
    fn the_least_recently_used_goes_first() {
        let cache = Cache::new(3);
        for k in 0..3 {
            cache.put(k, 10 * k, 1);
        }
        assert_eq!(cache.get(&0).as_deref(), Some(&0));
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
        // one that is too heavy is kept until the next comes
        cache.put(5, 5, 9);
        assert_eq!(cache.get(&5).as_deref(), Some(&5));
        cache.put(6, 6, 1);
        assert_eq!((0..7).filter(|k| cache.get(k).is_some()).collect::<Vec<_>>(), [6]);
    }

    #[test]
    fn what_is_there_stays() {
        let cache = Cache::new(2);
        cache.put("a", 1, 1);
        assert_eq!(*cache.put("a", 2, 1), 1);
        cache.put("b", 3, 1);
        assert_eq!(cache.get(&"a").as_deref(), Some(&1));
    }
}
