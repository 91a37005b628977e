from tests.quant.oracle import agrees, check, raw


def test_block_written_by_hand() -> None:
    check("F32", raw("F32", {0: "0000c0bf"}), {}, rest=-1.5)


def test_equals_the_gguf_package() -> None:
    agrees("F32")
