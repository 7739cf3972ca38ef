//! What was compiled, kept to be found again: what was not used for long goes first.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// Values by key, of a bounded weight in all.
///
/// The oldest goes, unless it was used since it came to the front: then it goes to the back once more. So nothing is searched.
pub(crate) struct Cache<K, V> {
    most: usize,
    state: Mutex<State<K, V>>,
}
struct State<K, V> {
    entries: HashMap<Arc<K>, Entry<V>>,
    /// All keys, the next to go first.
    order: VecDeque<Arc<K>>,
    weight: usize,
}
struct Entry<V> {
    value: V,
    weight: usize,
    /// Since it came into the order, or was put to its back.
    used: bool,
}

impl<K: Hash + Eq, V: Clone> Cache<K, V> {
    /// An empty one, for values that weigh at most this much together.
    pub(crate) fn new(most: usize) -> Cache<K, V> {
        let state = State { entries: HashMap::new(), order: VecDeque::new(), weight: 0 };
        Cache { most, state: Mutex::new(state) }
    }
    /// The value of this key, which was used now.
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = state.entries.get_mut(key)?;
        entry.used = true;
        Some(entry.value.clone())
    }
    /// Keeps a value, and lets go of others. One that another thread has put there meanwhile stays.
    pub(crate) fn put(&self, key: K, value: V, weight: usize) -> V {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        if let Some(known) = state.entries.get(&key) {
            return known.value.clone();
        }
        // one that is heavier than all may be is kept until the next comes
        while state.weight + weight > self.most
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
        state.entries.insert(key, Entry { value: value.clone(), weight, used: false });
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
        // one that is too heavy is kept until the next comes
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
