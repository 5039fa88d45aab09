use super::*;
use std::sync::Mutex;

#[tokio::test]
async fn lanes_go_on_beside_a_delete_that_panics() {
    let (orders, queue) = mpsc::channel(8);
    for order in 1..6 {
        orders.send(order).await.expect("has room");
    }
    drop(orders);
    let (done, before) = (Mutex::new(Vec::new()), hayloft_io::services_broken());
    let work = async |order| {
        tokio::task::yield_now().await;
        assert_ne!(order, 2, "wrong");
        tokio::task::yield_now().await;
        locks::lock(&done).push(order);
    };
    each(queue, 2, work).await;
    let mut done = done.into_inner().expect("whole");
    done.sort_unstable();
    assert_eq!(done, [1, 3, 4, 5]);
    assert!(hayloft_io::services_broken() > before);
}
