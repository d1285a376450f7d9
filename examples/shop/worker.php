<?php
// The worker of the shop in PHP, with the extension `memcached`: php worker.php QUEUE_PORT MAIL_URL
//
// It does what worker.py does.

const WAIT_MS = 1000;
const LEASE = 30;

$ends = false;
if (function_exists('pcntl_signal')) {
    pcntl_async_signals(true);
    pcntl_signal(SIGTERM, function () use (&$ends) {
        $ends = true;
    });
}

function connect(int $port): Memcached
{
    $queue = new Memcached();
    $queue->setOptions([
        // Longer than the wait for an order.
        Memcached::OPT_POLL_TIMEOUT => 10 * WAIT_MS,
        Memcached::OPT_COMPRESSION => false,
        Memcached::OPT_TCP_NODELAY => true,
        // A server that was away is asked again at once.
        Memcached::OPT_RETRY_TIMEOUT => 0,
    ]);
    $queue->addServer('127.0.0.1', $port);
    return $queue;
}

/** Sends a mail. Returns null for success, otherwise the milliseconds after which to try again; -1 leaves that to the queue. */
function send_mail(string $url, mixed $mail): ?int
{
    $options = ['http' => [
        'method' => 'POST',
        'header' => 'Content-Type: application/json',
        'content' => json_encode($mail),
        'ignore_errors' => true,
        'timeout' => LEASE / 2,
    ]];
    if (@file_get_contents($url, false, stream_context_create($options)) === false) {
        return -1;
    }
    $status = (int) explode(' ', $http_response_header[0])[1];
    if ($status >= 200 && $status < 300) {
        return null;
    }
    foreach ($http_response_header as $line) {
        if ($status === 503 && stripos($line, 'Retry-After:') === 0) {
            return (int) (1000 * (float) substr($line, 12));
        }
    }
    return -1;
}

function process(Memcached $queue, string $url, string $order): void
{
    $mails = json_decode($order, true)['mails'] ?? null;
    $again = is_array($mails) ? null : -1;
    foreach ($again === null ? $mails : [] as $mail) {
        if (!$queue->touch('orders', LEASE)) {
            return; // its time was over: another worker has it
        }
        $again = send_mail($url, $mail);
        if ($again !== null) {
            break;
        }
    }
    $queue->get(match (true) {
        $again === null => 'orders/close',
        $again < 0 => 'orders/abort',
        default => "orders/abort/delay=$again",
    });
}

$queue = connect((int) $argv[1]);
while (!$ends) {
    $order = $queue->get('orders/open/t=' . WAIT_MS);
    if ($order !== false) {
        process($queue, $argv[2], $order);
    } elseif ($queue->getResultCode() !== Memcached::RES_NOTFOUND) {
        // The server is away. What was open is in the queue again.
        $queue->quit();
        usleep(200000);
    }
}
