use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()?;
    println!("== exercise3");
    exercise_3()
}

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let batches: Vec<Array> = (0..4).map(|k| Key::new(k).normal([8, 4]).put(&mesh, p!["X", _])).collect();
    let w = Array::ones([4, 2]).put(&mesh, p![]);
    for marked in [false, true] {
        let step = jit(|batches: &Vec<Array>, w: &Array| {
            let w = if marked { w.reshard(p![; R: "X"]) } else { w.clone() };
            let gradients = batches.iter().map(|x| grad(&w, |w| x.dot(w).square().sum(..)));
            gradients.reduce(|a, b| a + b).expect("there are batches").reshard(p![])
        });
        let report = step.lower((&batches, &w))?;
        println!(
            "marked: {marked}: {} collectives, {} bytes",
            report.collectives().len(),
            report.collectives().bytes()
        );
    }
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let u = Array::ones([2, 4]).put(&mesh, p!["X", _]).sum_to(0, p![_; U: "X"]);
    let tell = |what: &str, x: Array| match x.ty() {
        Ok(ty) => println!("{what}: {ty}"),
        Err(_) => println!("{what}: rejected"),
    };
    tell("u.sum(..)", u.sum(..));
    tell("u.max(..)", u.max(..));
    tell("-u", -&u);
    tell("u / 2.0", &u / 2.0);
    Ok(())
}
// ANCHOR_END: exercise2

// ANCHOR: exercise3
fn exercise_3() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let u = Array::ones([4]).put(&mesh, p![]).reshard(p![_; U: "X"]);
    let s = Array::ones([4]).put(&Mesh::new([("X", 4)])?, p!["X"]);
    println!("{} {}", u.shards()?[0].data.nbytes()?, s.shards()?[0].data.nbytes()?);
    Ok(())
}
// ANCHOR_END: exercise3
