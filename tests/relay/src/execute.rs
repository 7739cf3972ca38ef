//! The run of a module: arguments go to process 0, which runs it, and results come back.

use crate::errors::{Code, fail_if_asked};
use crate::guarded;
use crate::link::Link;
use crate::real::{self, Call, address, copied, set_word, word};
use crate::world::World;
use std::sync::PoisonError;

pub(crate) extern "C" fn execute(arguments: *mut usize) -> usize {
    let Some((world, results)) = World::of_executable(word(arguments, 2)) else {
        return real::forward_call(real::LOADED_EXECUTE, arguments);
    };
    guarded(|| Run::new(arguments, &world, results)?.run())
}

/// One run of a module, in one process.
struct Run<'a> {
    world: &'a World,
    /// The address of the arguments of the call.
    call: *mut usize,
    /// The buffers of the arguments, for each own device.
    given: Vec<Vec<usize>>,
    /// The number of results on a device.
    results: usize,
}

/// The outcome of a run on all devices.
struct Ran {
    /// The buffers of the results, for each device.
    made: Vec<Vec<usize>>,
    /// The event of each device.
    events: Vec<usize>,
    /// For each argument, 1 if it was donated, else 0.
    donated: Vec<u8>,
}

impl<'a> Run<'a> {
    fn new(call: *mut usize, world: &'a World, results: usize) -> Result<Run<'a>, Call> {
        let (own, arguments) = (word(call, 5), word(call, 6));
        if own != world.each {
            let message = format!("arguments of {own} devices, but this process has {}", world.each);
            return Err(Call::own(Code::InvalidArgument, message));
        }
        let given =
            copied::<usize>(word(call, 4), own).into_iter().map(|list| copied(list, arguments)).collect();
        Ok(Run { world, call, given, results })
    }
    fn run(&self) -> Result<(), Call> {
        fail_if_asked("run")?;
        let mut links = self.world.links.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = self.world.abort_reason() {
            return Err(Call::own(Code::Unavailable, why));
        }
        match self.world.process {
            0 => self.run_all(&mut links),
            _ => self.run_by(&mut links[0]),
        }
    }

    /// Sends the arguments to process 0, and receives the results.
    fn run_by(&self, link: &mut Link) -> Result<(), Call> {
        let abort = || self.world.abort_reason();
        let mut message = Vec::new();
        for buffer in self.given.iter().flatten() {
            pack(*buffer, &mut message)?;
        }
        link.send(&message, &abort)?;
        let answer = link.receive(&abort)?;
        let mut rest = &answer[..];
        if take(&mut rest, 1)? != [1] {
            return Err(Call::own(Code::Internal, String::from_utf8_lossy(rest).into_owned()));
        }
        let donated = take(&mut rest, self.given.first().map_or(0, Vec::len))?.to_vec();
        for (k, list) in self.given.iter().enumerate() {
            let device = self.world.process * self.world.each + k;
            let made: Vec<usize> =
                (0..self.results).map(|_| unpack(self.world, &mut rest, device)).collect::<Result<_, _>>()?;
            let any = made.first().or(list.first()).copied();
            let event = any.map_or(Ok(0), |buffer| real::get(real::BUFFER_READY, buffer))?;
            self.hand_over(k, &made, event);
            for (buffer, _) in list.iter().zip(&donated).filter(|(_, donated)| **donated == 1) {
                real::call(real::BUFFER_DELETE, &mut [0, 0, *buffer])?;
            }
        }
        Ok(())
    }

    /// Receives the arguments of all processes, runs the module, and sends the results.
    fn run_all(&self, links: &mut [Link]) -> Result<(), Call> {
        let abort = || self.world.abort_reason();
        let ran = self.collect(links).and_then(|given| self.run_real(given));
        let Ran { made, events, donated } = match ran {
            Ok(ran) => ran,
            Err(error) => {
                let text = [&[0], error.text().as_bytes()].concat();
                // a link whose process is gone, or that is aborted, needs no answer
                links.iter_mut().for_each(|link| drop(link.send(&text, &|| Some("over".into()))));
                return Err(error);
            }
        };
        for (k, (list, event)) in made.iter().zip(&events).enumerate().take(self.world.each) {
            self.hand_over(k, list, *event);
        }
        for (k, link) in links.iter_mut().enumerate() {
            let first = (k + 1) * self.world.each;
            let mut message = vec![1];
            message.extend(&donated);
            for device in first..first + self.world.each {
                real::wait(events[device])?;
                for buffer in &made[device] {
                    pack(*buffer, &mut message)?;
                    real::call(real::BUFFER_DESTROY, &mut [0, 0, *buffer])?;
                }
            }
            link.send(&message, &abort)?;
        }
        Ok(())
    }

    /// Returns the buffers of the arguments of all devices.
    fn collect(&self, links: &mut [Link]) -> Result<Vec<Vec<usize>>, Call> {
        let mut given = self.given.clone();
        for (k, link) in links.iter_mut().enumerate() {
            let message = link.receive(&|| self.world.abort_reason())?;
            let mut rest = &message[..];
            for device in (k + 1) * self.world.each..(k + 2) * self.world.each {
                let list = self.given[0].iter().map(|_| unpack(self.world, &mut rest, device));
                given.push(list.collect::<Result<_, _>>()?);
            }
            if !rest.is_empty() {
                return Err(Call::own(Code::Internal, format!("process {} runs another module", k + 1)));
            }
        }
        Ok(given)
    }

    /// Runs the module on the client of the plugin below.
    fn run_real(&self, given: Vec<Vec<usize>>) -> Result<Ran, Call> {
        let (devices, arguments) = (given.len(), given[0].len());
        let ins: Vec<usize> = given.iter().map(|list| address(list.as_ptr())).collect();
        let mut made = vec![vec![0usize; self.results]; devices];
        let outs: Vec<usize> = made.iter_mut().map(|list| list.as_mut_ptr().expose_provenance()).collect();
        let mut events = vec![0usize; devices];
        let (loaded, options) = (word(self.call, 2), word(self.call, 3));
        let (ins, outs) = (address(ins.as_ptr()), address(outs.as_ptr()));
        let event_list = events.as_mut_ptr().expose_provenance();
        let ran = real::call(
            real::LOADED_EXECUTE,
            &mut [0, 0, loaded, options, ins, devices, arguments, outs, event_list, 0],
        );
        let is_deleted = |buffer: &usize| real::get(real::BUFFER_IS_DELETED, *buffer).map(|yes| yes as u8);
        let donated = ran.and_then(|()| given[0].iter().map(is_deleted).collect::<Result<Vec<u8>, _>>());
        // the copies of the other processes' arguments
        for buffer in given[self.given.len()..].iter().flatten() {
            real::call(real::BUFFER_DESTROY, &mut [0, 0, *buffer])?;
        }
        Ok(Ran { made, events, donated: donated? })
    }

    /// Writes the results of an own device to where the caller wants them.
    fn hand_over(&self, k: usize, made: &[usize], event: usize) {
        let lists = word(self.call, 7);
        let list: usize = copied(lists, k + 1)[k];
        let to: *mut usize = std::ptr::with_exposed_provenance_mut(list);
        for (n, buffer) in made.iter().enumerate() {
            // SAFETY: the caller's list of this device has space for all results
            unsafe { to.add(n).write(*buffer) };
        }
        match word(self.call, 8) {
            0 => drop(real::wait(event)),
            events => set_word(std::ptr::with_exposed_provenance_mut(events), k, event),
        }
    }
}

/// Appends a buffer: element type, rank, sizes, number of bytes, and the elements in row-major order.
fn pack(buffer: usize, to: &mut Vec<u8>) -> Result<(), Call> {
    let kind = real::get(real::BUFFER_TYPE, buffer)? as u8;
    let dims: Vec<i64> = real::list(real::BUFFER_DIMENSIONS, buffer)?.into_iter().map(|n| n as i64).collect();
    let order: Vec<i64> = (0..dims.len() as i64).rev().collect();
    let layout = [80usize, 0, 56, 0, address(order.as_ptr()), order.len(), 0, 0, 0, 0];
    let mut words = [0, 0, buffer, address(layout.as_ptr()), 0, 0, 0];
    // without a target, the call returns the number of bytes
    real::call(real::BUFFER_TO_HOST, &mut words)?;
    let mut elements = vec![0u8; words[5]];
    words[4] = elements.as_mut_ptr().expose_provenance();
    real::call(real::BUFFER_TO_HOST, &mut words)?;
    real::wait(words[6])?;
    to.extend([kind, dims.len() as u8]);
    dims.iter().for_each(|n| to.extend(n.to_le_bytes()));
    to.extend((elements.len() as u64).to_le_bytes());
    to.extend(elements);
    Ok(())
}

/// Removes a buffer from the front of a message, and copies it to a device.
fn unpack(world: &World, from: &mut &[u8], device: usize) -> Result<usize, Call> {
    let head = take(from, 2)?;
    let (kind, rank) = (usize::from(head[0]), usize::from(head[1]));
    let integer = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().unwrap_or_default());
    let dims: Vec<i64> = take(from, 8 * rank)?.chunks(8).map(integer).collect();
    let len = integer(take(from, 8)?) as usize;
    world.put(take(from, len)?, kind, &dims, device)
}

fn take<'a>(from: &mut &'a [u8], n: usize) -> Result<&'a [u8], Call> {
    let other = || Call::own(Code::Internal, "a process runs a module with other arguments");
    let (first, rest) = from.split_at_checked(n).ok_or_else(other)?;
    *from = rest;
    Ok(first)
}
