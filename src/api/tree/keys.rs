//! Random keys as trees of one array.

use super::{Args, Param, Path, Tree};
use crate::api::{array::Array, random::Key};
use crate::core::Error;

impl Tree for Key {
    fn visit<'a>(&'a self, path: &mut Path, f: &mut dyn FnMut(&Path, &'a Array)) {
        f(path, self.array());
    }
    fn rebuild(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Array) -> Array) -> Key {
        Key::from_array(f(path, self.array()))
    }
    fn differs(&self, _: &Key, _: &mut Path) -> Option<String> {
        None
    }
    fn filled_with(error: &Error) -> Key {
        Key::from_array(Array::poisoned(error.clone()))
    }
}
impl Args for Key {
    type Owned = Key;
    fn into_tree(self) -> Key {
        self
    }
}
impl Param for Key {
    type Owned = Key;
    type Item<'a> = Key;
    fn lend(owned: &Key) -> Key {
        owned.clone()
    }
}
