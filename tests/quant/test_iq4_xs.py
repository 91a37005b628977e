from tests.quant.oracle import agrees, check, raw


def test_block_written_by_hand() -> None:
    check(
        "IQ4_XS",
        raw("IQ4_XS", {0: "0038", 2: "0e00", 4: "f1000000", 8: "8f", 24: "08"}, fill=0x88),
        {range(32): 0.5, 0: 56.5, range(32, 64): 15.5, 32: 15.5, 48: -1968.5},
        rest=-16.0,
    )


def test_equals_the_gguf_package() -> None:
    agrees("IQ4_XS")
