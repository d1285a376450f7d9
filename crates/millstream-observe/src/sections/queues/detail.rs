//! One queue in detail: its connections, and the beginnings of its items.

use millstream_http::pages::Page;
use millstream_queue::server::watch::{GlancedItem, Holder};
use serde_json::{Value, json};

use super::Queues;
use crate::lock;
use crate::sections::{json, text_and_hex};

impl Queues {
    /// A queue with its holders and, where they may be shown, its items: those of the next second on.
    pub(super) fn detail(&self, name: &str) -> Option<Page> {
        let (queues, figures) = {
            let known = lock(&self.known);
            (known.queues.clone(), known.figures.clone())
        };
        let find = |of: &str| of.cmp(name);
        let queue = queues.binary_search_by(|queue| find(&queue.name)).ok()?;
        let holders = figures.queues.binary_search_by(|queue| find(&queue.name));
        let holders = holders.map_or(&[][..], |index| &figures.queues[index].holders);
        let mut answer = json!({
            "queue": queues[queue],
            "holders": holders.iter().map(holder).collect::<Vec<_>>(),
            "items_are_shown": self.shows_items,
        });
        if self.shows_items {
            self.watch.ask(name);
            let glance = figures.glances.get(name);
            let all = |items: &[GlancedItem]| -> Vec<Value> {
                let shown = items.iter().map(|one| item(one, figures.time_ms));
                shown.collect()
            };
            answer["waiting"] = json!(glance.map(|glance| all(&glance.waiting)));
            answer["open"] = json!(glance.map(|glance| all(&glance.open)));
        }
        Some(json(&answer))
    }
}

fn holder(holder: &Holder) -> Value {
    json!({
        "connection": holder.connection,
        "peer": holder.peer,
        "items": holder.items,
        "oldest": holder.oldest,
        "held_seconds": holder.held_ms as f64 / 1e3,
    })
}

fn item(item: &GlancedItem, now_ms: u64) -> Value {
    let whole = item.length == item.head.len() as u64;
    let (text, hex) = text_and_hex(&item.head, whole);
    json!({
        "id": item.id,
        "age_seconds": now_ms.saturating_sub(item.added_ms) as f64 / 1e3,
        "expires_in_seconds": (item.expiry_ms != 0)
            .then(|| (item.expiry_ms as f64 - now_ms as f64) / 1e3),
        "deliveries": item.deliveries,
        "bytes": item.length,
        "text": text,
        "hex": hex,
        "is_whole": whole,
        "peer": item.holder.as_ref().map(|(_, peer)| peer),
        "connection": item.holder.as_ref().map(|(connection, _)| connection),
    })
}
