from tests.quant.oracle import agrees, check, quantizes_like_gguf, raw


def test_block_written_by_hand() -> None:
    check(
        "TQ1_0",
        raw("TQ1_0", {0: "cf", 32: "cf", 48: "ce", 52: "0040"}),
        {0: 2.0, 32: 0.0, 96: 2.0, 128: 0.0, 160: 2.0, 176: 0.0, 208: 2.0, 224: 0.0, 240: 2.0, 244: 0.0, 252: 2.0},
        rest=-2.0,
    )


def test_equals_the_gguf_package() -> None:
    agrees("TQ1_0")


def test_quantizes_like_the_gguf_package() -> None:
    quantizes_like_gguf("TQ1_0")
