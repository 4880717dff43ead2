// SPDX-License-Identifier: GPL-2.0
/* Proves that lab/vm/build-module makes what a guest's kernel loads: adds one to its parameter. */
#include <linux/module.h>
#include <linux/moduleparam.h>

static int number = 41;
module_param(number, int, 0444);
MODULE_PARM_DESC(number, "one less than what is shown after loading");

static int __init hawser_vm_init(void)
{
    if (number < 0)
        return -EINVAL;
    number++;
    return 0;
}

static void __exit hawser_vm_exit(void)
{
}

module_init(hawser_vm_init);
module_exit(hawser_vm_exit);
MODULE_DESCRIPTION("hawser: a module to try the VM lab with");
MODULE_LICENSE("GPL");
