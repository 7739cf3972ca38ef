//! The example `llama`: its logits are the reference's, and decoding with a cache changes nothing.

#[path = "../../examples/llama.rs"]
#[allow(dead_code)]
mod example;

use atmesh::prelude::*;
use example::{Cache, Config, Llama, Sampling, decode, empty_cache, forward, layout, load};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/safetensors/hf/llama")
}
fn model(mesh: &Mesh, cache: [usize; 2]) -> Result<(Config, Llama, Cache)> {
    let c = Config::read(&folder())?;
    let (model, cache) = (load(&folder(), &c, mesh)?, empty_cache(&c, mesh, cache));
    Ok((c, model, cache))
}

/// All tokens at once, one after the other, and in parts of two and four have the same logits.
#[test]
fn decoding_with_a_cache_gives_the_logits_of_the_reference() -> Result<()> {
    let wanted = Array::load_npy(folder().join("logits.npy"))?;
    for mesh in [layout(1, 1)?, layout(2, 4)?, layout(8, 1)?] {
        let (c, m, empty) = model(&mesh, [8, 10])?;
        let ids = Array::load_npy(folder().join("ids.npy"))?.put(&mesh, p!["batch"]);
        let step = jit(|m: &Llama, cache: &Cache, ids: &Array| forward(m, &c, cache, ids));
        for parts in [vec![6], vec![1; 6], vec![2, 4]] {
            let (mut cache, mut at) = (empty.clone(), 0);
            for part in parts {
                let (logits, next) = step.call((&m, &cache, ids.slice(ix![.., at..at + part])))?;
                let wanted = wanted.slice(ix![.., at..at + part]).put(&mesh, p![]);
                let difference = (logits.reshard(p![]) - wanted).abs().max(..).item::<f32>()?;
                assert!(difference <= 1e-5, "{mesh}, tokens {at}..{}: {difference}", at + part);
                (cache, at) = (next, at + part);
            }
        }
    }
    Ok(())
}

/// Greedy tokens are those of the largest logits, and one of the top 1 is greedy.
#[test]
fn tokens_do_not_depend_on_the_mesh() -> Result<()> {
    let (top, one) = (Sampling::TopK { k: 5, temperature: 1.5 }, Sampling::TopK { k: 1, temperature: 1.0 });
    let mut all = Vec::new();
    for mesh in [layout(1, 1)?, layout(2, 4)?, layout(4, 2)?] {
        let (c, m, cache) = model(&mesh, [4, 16])?;
        let prompts = Key::new(5).randint([4, 3], 0..c.vocab_size as i64).put(&mesh, p!["batch"]);
        let run = |sampling: Sampling| {
            let f = jit(|m: &Llama, cache: &Cache, ids: &Array| decode(m, &c, cache, ids, 8, sampling));
            f.call((&m, &cache, &prompts))?.to_vec::<i32>()
        };
        let (greedy, drawn) = (run(Sampling::Greedy)?, run(top)?);
        assert_eq!(run(one)?, greedy);
        assert_ne!(drawn, greedy);
        // the model itself, without a cache of earlier tokens, says the same next tokens
        let mut rows = prompts.reshard(p![]);
        for k in 0..8 {
            let ids = rows.reshard(p!["batch"]);
            let (logits, _) = forward(&m, &c, &empty_cache(&c, &mesh, [4, 3 + k]), &ids)?;
            let next = logits.slice(ix![.., -1]).reshard(p![]).argmax(-1);
            assert_eq!(next.to_vec::<i32>()?, greedy[4 * k..4 * k + 4], "{mesh}, token {k}");
            rows = concat([&rows, &next.expand_dims(1)], 1);
        }
        all.push((greedy, drawn));
    }
    assert!(all.iter().all(|tokens| *tokens == all[0]));
    Ok(())
}
