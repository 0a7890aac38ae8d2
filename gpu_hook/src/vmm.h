/* Entry points of the virtual-memory API. A handle's memory is charged once, until its last reference and its last
 * mapping are gone; memory of the host is not charged. */
#ifndef ALIQUOT_VMM_H
#define ALIQUOT_VMM_H

/* In the child of a fork. */
void vmm_reset(void);

#endif
