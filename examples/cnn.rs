//! A convolutional network learns to read digits: data parallelism over 4 devices, with batch norm
//! over the whole batch.
use atmesh::nn::{self, BatchNormOptions, BatchStats};
use atmesh::optim::{self, OptState};
use atmesh::prelude::*;

/// Pictures of the ten digits, 5 rows of 3 pixels, each row an octal digit.
const DIGITS: [u32; 10] =
    [0o75557, 0o26227, 0o71747, 0o71717, 0o55711, 0o74717, 0o74757, 0o71111, 0o75757, 0o75717];
const SIZE: usize = 8;
const FEATURES: [usize; 3] = [1, 8, 16];

// ANCHOR: model
#[derive(Clone, Tree)]
struct Conv<T = Array> {
    w: T, // [3, 3, in, out]
    scale: T,
    bias: T,
}
#[derive(Clone, Tree)]
struct Net<T = Array> {
    convs: Vec<Conv<T>>,
    out: T, // [2, 2, in, digits]
}

/// Returns a score for each digit, and the running statistics of the norms.
fn logits(net: &Net, stats: &[BatchStats], images: &Array, train: bool) -> (Array, Vec<BatchStats>) {
    let same = ConvOptions::default().padding(Padding::Same).layout("NHWC", "HWIO", "NHWC");
    let (mut x, mut next) = (images.clone(), Vec::new());
    for (conv, stats) in net.convs.iter().zip(stats) {
        let norm = BatchNormOptions::default().momentum(0.9);
        let y = x.conv_with(&conv.w, same.clone());
        let (y, stats) = nn::batch_norm_with(&y, &conv.scale, &conv.bias, stats, train, norm);
        x = y.relu().max_pool_with([2, 2], WindowOptions::default().dims([1, 2]));
        next.push(stats);
    }
    // each image has 2 x 2 positions left
    (einsum("nhwc,hwcd->nd", [&x, &net.out]), next)
}

type Training = (Net, Vec<BatchStats>, OptState);

fn step((net, stats, opt_state): Training, images: &Array, labels: &Array) -> (Training, Array) {
    let ((loss, stats), g) = value_and_grad(&net, |net| {
        let (logits, stats) = logits(&net, &stats, images, true);
        (nn::softmax_cross_entropy_with_integer_labels(&logits, labels).mean(..), stats)
    });
    let (net, opt_state) = optim::adam(0.02).step(&net, &g, &opt_state);
    ((net, stats, opt_state), loss)
}
// ANCHOR_END: model

/// Returns each digit at four positions: `[10, 4, SIZE, SIZE, 1]`.
fn templates() -> Array {
    let mut pixels = Vec::new();
    for (digit, at) in DIGITS.iter().flat_map(|digit| (0..4).map(move |at| (digit, at))) {
        let (top, left) = (1 + at / 2, 2 + at % 2);
        pixels.extend((0..SIZE * SIZE).map(|i| {
            let (y, x) = ((i / SIZE).wrapping_sub(top), (i % SIZE).wrapping_sub(left));
            f32::from(y < 5 && x < 3 && digit >> (14 - 3 * y - x) & 1 == 1)
        }));
    }
    Array::from(pixels).reshape([10, 4, SIZE, SIZE, 1])
}

/// Makes noisy images of digits at one of these positions, and their labels.
fn data(templates: &Array, mesh: &Mesh, seed: u64, n: usize) -> [Array; 2] {
    let [a, b, c] = Key::new(seed).split();
    let (labels, at) = (a.randint([n], 0..10), b.randint([n], 0..4));
    let images = templates.at(ix![&labels, &at]).get() + 0.2 * c.normal([n, SIZE, SIZE, 1]);
    [images, labels].map(|a| a.put(mesh, p!["batch"]))
}

/// Trains on a number of devices. Returns the losses and the share of new images that are read.
fn train(devices: usize, steps: u64) -> Result<(Vec<f32>, f32)> {
    let mesh = Mesh::new([("data", devices)])?.with_logical_axes([("batch", "data")])?;
    let (templates, keys) = (templates(), Key::new(0).split_vec(3));
    let conv = |i: usize| Conv {
        w: nn::init::he_normal(&keys[i], [3, 3, FEATURES[i], FEATURES[i + 1]]),
        scale: Array::ones([FEATURES[i + 1]]),
        bias: Array::zeros([FEATURES[i + 1]]),
    };
    let net = Net { convs: vec![conv(0), conv(1)], out: nn::init::normal(&keys[2], [2, 2, 16, 10], 0.1) };
    let stats = FEATURES[1..].iter().map(|n| BatchStats::new(*n)).collect::<Vec<_>>();
    let (net, stats) = tree::put(&(net, stats), &mesh, p![]);
    let opt_state = optim::adam(0.02).init(&net)?;
    let (mut training, mut losses, step) = ((net, stats, opt_state), Vec::new(), jit(step).donate(0));
    for i in 0..steps {
        let [images, labels] = data(&templates, &mesh, i, 32);
        if i == 0 && devices > 1 {
            println!("{}", step.lower((&training, &images, &labels))?.collectives());
        }
        let loss;
        (training, loss) = step.call((training, &images, &labels))?;
        losses.push(loss.item::<f32>()?);
    }
    let [images, labels] = data(&templates, &mesh, 1000, 256);
    let (scores, _) = logits(&training.0, &training.1, &images, false);
    Ok((losses, scores.argmax(-1).eq(&labels).astype(F32).mean(..).item()?))
}

fn main() -> Result<()> {
    let (losses, right) = train(4, 61)?;
    for i in (0..=60).step_by(20) {
        println!("step {i}: loss {:.3}", losses[i]);
    }
    println!("of 256 new images, {:.0} % are read", 100.0 * right);
    assert!(losses[60] < 0.4 && right > 0.85);
    let (one, _) = train(1, 4)?;
    let same = one.iter().zip(&losses).all(|(a, b)| (a - b).abs() < 1e-4);
    println!("on one device, the same losses: {same}");
    Ok(())
}
